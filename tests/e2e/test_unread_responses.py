"""A daemon enforces `limits.unread`, and its metrics show it."""

import asyncio
import socket
from pathlib import Path

import aiohttp
from aiohttp import AddrInfoType

from tests.e2e.daemon import call, serving
from tests.messages import MODERN

FILE = """
listen: {http: "127.0.0.1:0"}
limits: {unread: {per_caller: 1KiB, in_all: 2KiB}}
tools:
  large:
    description: More than the buffers of a connection hold (tcp_wmem of tcp(7), and what its reader lets it).
    shell: {command: [seq, "1500000"]}
    output: {max_size: 64MB}
"""
HEADERS = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "large"}


def small_buffer(address: AddrInfoType) -> socket.socket:
    """Create a socket with a small receive buffer. By default, Linux buffers up to 32 MiB (tcp_rmem)."""
    made = socket.socket(*address[:3])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    return made


async def test_dropped_response_is_logged_and_counted(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(FILE)
    connector = aiohttp.TCPConnector(socket_factory=small_buffer)
    async with serving(config) as daemon, aiohttp.ClientSession(connector=connector) as client, asyncio.timeout(60):
        url = await daemon.url()
        written = await client.post(url, json=call("large"), headers=HEADERS)  # the body is not read
        assert written.status == 200
        others = [asyncio.create_task(client.post(url, json=call("large"), headers=HEADERS)) for _ in range(2)]
        [refused], _ = await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)  # the other response waits
        assert refused.result().status == 503
        async with client.get(url.replace("/mcp", "/metrics")) as response:
            assert 'mcp_gateway_limit_refusals_total{limit="unread"} 1.0' in await response.text()
        await written.read()
        answers = await asyncio.gather(*others)
        assert {each.status for each in answers} == {200, 503}
        for answer in answers:
            answer.close()
