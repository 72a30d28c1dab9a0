"""A server on the official Python SDK, of its first line or its second: `python sdk_server.py TRANSPORT [PORT]`."""

# mypy: disable-error-code="untyped-decorator"

import asyncio
import sys
from pathlib import Path
from typing import Any

transport, port = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
try:
    from mcp.server.fastmcp import Context, FastMCP, Image
    from mcp.types import Completion

    server: Any = FastMCP("sdk", port=port)
    options: dict[str, Any] = {}
except ImportError:
    from mcp.server import MCPServer
    from mcp.server.mcpserver import Context, Image
    from mcp_types import Completion

    server = MCPServer("sdk")
    options = {} if transport == "stdio" else {"port": port}


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def picture() -> Any:
    """Draw."""
    return Image(data=b"\x89PNG", format="png")


@server.tool()
def fail() -> str:
    """Never work."""
    raise ValueError("it went wrong")


@server.tool()
async def count(to: int, context: Context) -> str:
    """Report progress."""
    for number in range(1, to + 1):
        await context.report_progress(number, to)
    return "counted"


@server.tool()
async def say(text: str, context: Context) -> str:
    """Log."""
    await context.log("warning", text)
    return "said"


@server.tool()
async def wait(mark: str) -> str:
    """Wait until cancelled."""
    path = Path(mark)
    path.write_text("began", encoding="utf-8")
    try:
        await asyncio.sleep(3600)
    finally:
        path.write_text("cancelled", encoding="utf-8")
    return "waited"


@server.tool()
async def grow(name: str, context: Context) -> str:
    """Offer one more tool."""
    server.add_tool(add, name=name)
    if hasattr(context, "notify_tools_changed"):
        await context.notify_tools_changed()
    await context.session.send_tool_list_changed()
    return "grown"


@server.tool()
async def touch(uri: str, context: Context) -> str:
    """Say that a resource was updated."""
    if hasattr(context, "notify_resource_updated"):
        await context.notify_resource_updated(uri)
    return "touched"


@server.resource("note://one", mime_type="text/plain")
def note() -> str:
    return "the first note"


@server.resource("greeting://{name}")
def greeting(name: str) -> str:
    return f"hello {name}"


@server.prompt()
def review(text: str) -> str:
    return f"Review {text}"


@server.completion()
async def complete(reference: Any, argument: Any, _context: Any) -> Any:
    known = ["ada", "alan"] if reference.type == "ref/resource" else ["alpha", "beta"]
    return Completion(values=[value for value in known if value.startswith(argument.value)])


server.run(transport, **options)
