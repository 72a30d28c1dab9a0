"""Upstreams that run this gateway, in one era and over one transport."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

from tests.e2e.daemon import Daemon, serving
from tests.fork_launcher import fork_launcher
from tests.messages import MODERN, modern_request

SERVER: Final = Path(__file__).parent / "testdata" / "upstream.yaml"


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The transport and era of an upstream."""

    transport: str
    era: str

    def __str__(self) -> str:
        return f"{self.transport}-{self.era}"


DIALECTS: Final = [
    Dialect(transport="stdio", era="legacy"),
    Dialect(transport="stdio", era="modern"),
    Dialect(transport="http", era="legacy"),
    Dialect(transport="http", era="modern"),
    Dialect(transport="sse", era="legacy"),
]


def over_stdio(server: Path = SERVER, *, era: str = "") -> str:
    """Return the keys of an entry for a server over stdio."""
    program = str(fork_launcher().program)
    command = [program, "serve", str(server), "--stdio", "--no-watch", "--state-dir", "none"]
    return f"command: {command}" + (f"\n    era: {era}" if era else "")


@asynccontextmanager
async def reached(dialect: Dialect, server: Path = SERVER) -> AsyncIterator[str]:
    """Start a server, and yield the keys of its entry."""
    if dialect.transport == "stdio":
        yield over_stdio(server, era=dialect.era)
        return
    async with serving(server, "--http", "127.0.0.1:0", "--state-dir", "none") as daemon:
        url = await daemon.url()
        if dialect.transport == "sse":
            url = url.replace("/mcp", "/sse")
        yield f"url: {url}\n    type: {dialect.transport}\n    era: {dialect.era}\n    allow_private: true"


async def until_offered(daemon: Daemon, tool: str) -> None:
    """Wait until a tool of an upstream is listed, which can take longer than the start waits."""
    url, headers = await daemon.url(), {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list"}
    async with asyncio.timeout(60), aiohttp.ClientSession() as http:
        while True:
            async with http.post(url, json=modern_request("tools/list"), headers=headers) as response:
                if f'"{tool}"' in await response.text():
                    return
            await asyncio.sleep(0.05)
