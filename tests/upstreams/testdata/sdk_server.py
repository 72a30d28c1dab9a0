"""A server on the official Python SDK, of its first line or its second: `python sdk_server.py TRANSPORT [PORT]`."""

# mypy: disable-error-code="untyped-decorator"

import sys
from typing import Any

transport, port = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
try:
    from mcp.server.fastmcp import Context, FastMCP

    server: Any = FastMCP("sdk", port=port)
    options: dict[str, Any] = {}
except ImportError:
    from mcp.server import MCPServer
    from mcp.server.mcpserver import Context

    server = MCPServer("sdk")
    options = {} if transport == "stdio" else {"port": port}


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def count(to: int, context: Context) -> str:
    """Report progress."""
    for number in range(1, to + 1):
        await context.report_progress(number, to)
    return "counted"


@server.resource("greeting://{name}")
def greeting(name: str) -> str:
    return f"hello {name}"


@server.prompt()
def review(text: str) -> str:
    return f"Review {text}"


server.run(transport, **options)
