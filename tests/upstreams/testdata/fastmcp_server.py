"""A server on FastMCP: `python fastmcp_server.py TRANSPORT [PORT]`."""

# mypy: disable-error-code="untyped-decorator"

import asyncio
import sys
from pathlib import Path
from typing import Any

import mcp_types
from fastmcp import Context, FastMCP
from fastmcp.tools import Tool
from fastmcp.utilities.types import Image

transport, port = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
server: Any = FastMCP("fast")


@server.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
def picture() -> Any:
    """Draw."""
    return Image(data=b"\x89PNG", format="png")


@server.tool
def fail() -> str:
    """Never work."""
    raise ValueError("it went wrong")


@server.tool
async def count(to: int, context: Context) -> str:
    """Report progress."""
    for number in range(1, to + 1):
        await context.report_progress(number, to)
    return "counted"


@server.tool
async def say(text: str, context: Context) -> str:
    """Log."""
    await context.log(text, level="warning")
    return "said"


@server.tool
async def wait(mark: str) -> str:
    """Wait until cancelled."""
    path = Path(mark)
    path.write_text("began", encoding="utf-8")
    try:
        await asyncio.sleep(3600)
    finally:
        path.write_text("cancelled", encoding="utf-8")
    return "waited"


@server.tool
async def grow(name: str, context: Context) -> str:
    """Offer one more tool."""
    server.add_tool(Tool.from_function(lambda: "more", name=name))
    await context.send_notification(mcp_types.ToolListChangedNotification())
    return "grown"


@server.resource("note://one", mime_type="text/plain")
def note() -> str:
    return "the first note"


@server.resource("greeting://{name}")
def greeting(name: str) -> str:
    return f"hello {name}"


@server.resource("tree://{path*}")
def tree(path: str) -> str:
    return f"at {path}"


@server.prompt
def review(text: str) -> str:
    return f"Review {text}"


@server.completion
def complete(reference: Any, argument: Any, _context: Any) -> list[str]:
    known = ["ada", "alan"] if reference.type == "ref/resource" else ["alpha", "beta"]
    return [value for value in known if value.startswith(argument.value)]


server.run(transport, show_banner=False, **({} if transport == "stdio" else {"port": port}))
