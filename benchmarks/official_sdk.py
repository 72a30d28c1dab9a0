"""The same tools, served by the official SDK without logs, in a separate environment. Imports nothing of the gateway.

Written as in the SDK's documentation, with the faster alternatives: functions are coroutines, because the SDK runs
others in threads, and they only return text, because the SDK would otherwise validate and send each result twice.
"""

import argparse
import asyncio
from typing import Annotated, Final

import httpx2
from mcp.server.mcpserver import MCPServer
from pydantic import Field

FIXED: Final = 3
"""The number of working tools. The rest fills the list."""


async def echo(text: Annotated[str, Field(description="What to say.")]) -> str:
    return text


async def shell_echo(text: Annotated[str, Field(description="What to say.")]) -> str:
    child = await asyncio.create_subprocess_exec(
        "echo", text, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, _ = await child.communicate()
    return out.decode()


async def filler(
    path: Annotated[str, Field(description="Where to look.")],
    depth: Annotated[int, Field(description="How deep.", ge=0, le=9)] = 1,
    quiet: Annotated[bool, Field(description="Whether to say less.")] = False,  # noqa: FBT002 - as an author writes it
) -> str:
    return f"{path} {depth} {quiet}"


def served(*, tools: int, upstream: str) -> MCPServer:
    server = MCPServer("benchmark", log_level="CRITICAL")
    client = httpx2.AsyncClient()

    async def http_get(item: Annotated[str, Field(description="What to fetch.")]) -> str:
        answer = await client.get(f"{upstream}/{item}")
        return str(answer.text)

    for function in (echo, shell_echo, http_get):
        server.add_tool(function, description="Returns the given text.", structured_output=False)
    for number in range(tools - FIXED):
        server.add_tool(filler, name=f"tool_{number}", description="Looks somewhere.", structured_output=False)
    return server


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tools", type=int, required=True)
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--port", type=int, help="the port for Streamable HTTP (default: stdio)")
    options = parser.parse_args()
    server = served(tools=options.tools, upstream=options.upstream)
    if options.port is None:
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=options.port)


main()
