"""The memory for slow clients is bounded, and freed when they disconnect."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.daemon import Daemon, call, serving
from tests.e2e.test_unread_responses import small_buffer
from tests.messages import BOTH, legacy_request, modern_headers, open_session

pytestmark = pytest.mark.build

FILE = """
listen: {http: "127.0.0.1:0"}
limits: {unread: {per_caller: 32MiB, in_all: 64MiB}}
tools:
  large:
    description: Four megabytes.
    shell: {command: [seq, "600000"]}
    output: {max_size: 64MB}
"""
CALLS = 40
MIB = 2**20


def rss(daemon: Daemon) -> int:
    """Return the resident memory of the daemon in bytes."""
    status = Path(f"/proc/{daemon.process.pid}/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


@pytest.mark.parametrize("is_modern", [True, False])
async def test_unread_http_responses_are_freed_with_their_connections(tmp_path: Path, *, is_modern: bool) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(FILE)
    async with serving(config) as daemon, asyncio.timeout(30):
        url, base = await daemon.url(), 0
        for _ in range(3):
            connector = aiohttp.TCPConnector(limit=CALLS, socket_factory=small_buffer)
            async with aiohttp.ClientSession(connector=connector) as client:
                if is_modern:
                    message, headers = call("large"), modern_headers("tools/call", {"name": "large"}, Accept=BOTH)
                else:
                    message = legacy_request("tools/call", {"name": "large", "arguments": {}})
                    headers = await open_session(client, url)
                async with client.post(url, json=message, headers=headers) as answer:
                    await answer.read()
                base = base or rss(daemon)
                posting = [
                    asyncio.create_task(client.post(url, json=message | {"id": number}, headers=headers))
                    for number in range(CALLS)
                ]
                while (
                    sum(each.done() for each in posting) < CALLS // 2
                ):  # most of the others are rejected, and some wait
                    await asyncio.sleep(0.01)
                assert rss(daemon) - base < 300 * MIB
                for each in posting:
                    each.cancel()
                for ended in await asyncio.gather(*posting, return_exceptions=True):
                    if isinstance(ended, aiohttp.ClientResponse):
                        ended.close()
            while rss(daemon) - base > 48 * MIB:
                await asyncio.sleep(0.05)


async def test_unread_stdio_responses_are_bounded_and_freed(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(FILE)
    async with serving(config, "--stdio") as daemon, asyncio.timeout(30):
        await daemon.ask(call("large"))
        before = rss(daemon)
        daemon.send(*[call("large") | {"id": number} for number in range(CALLS)])
        await daemon.event("response dropped")
        while rss(daemon) - before > 96 * MIB:
            await asyncio.sleep(0.05)
        answers = [await daemon.receive() for _ in range(CALLS)]
        assert sorted(each["id"] for each in answers) == list(range(CALLS))
        assert any("limits.unread" in str(each.get("error")) for each in answers)
        while rss(daemon) - before > 48 * MIB:
            await asyncio.sleep(0.05)
