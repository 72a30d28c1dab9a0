"""A tool that reads a resource of the same daemon."""

from gateway.plugin import Context


async def embed(context: Context, uri: str) -> str:
    """Read a resource."""
    return str((await context.read_resource(uri))[0]["text"])
