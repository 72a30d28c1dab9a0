"""A thousand calls leave no threads, descriptors, children, sessions or calls behind."""

import asyncio
import os
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from gateway.json_types import Json
from tests.e2e.daemon import Daemon, call, post_call, serving
from tests.messages import legacy_request, open_session

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts in /proc")

COUNTED: Final = (
    "sessions",
    "streams",
    "calls_running",
    "calls_waiting",
    "children",
    "children_ending",
    "threads_stuck",
    "worker_threads_stuck",
)


@pytest.mark.build
async def test_thousand_calls_over_http_leak_nothing(config: Path) -> None:
    async with serving(config) as daemon:
        url = await daemon.url()
        await burst(url, 40)
        before = await counted(daemon, url)
        await burst(url, 1000)
        async with asyncio.timeout(20):
            while exceeds(await counted(daemon, url), before):
                await asyncio.sleep(0.1)


@pytest.mark.build
async def test_thousand_calls_over_stdio_leak_nothing(config: Path) -> None:
    async with serving(config, "--stdio", "--http", "127.0.0.1:0") as daemon:
        url = await daemon.url()
        await lines(daemon, 40)
        before = await counted(daemon, url)
        await lines(daemon, 1000)
        async with asyncio.timeout(20):
            while exceeds(await counted(daemon, url), before):
                await asyncio.sleep(0.1)


async def burst(url: str, calls: int) -> None:
    """Make modern calls and calls in sessions. Some clients disconnect during the call."""
    turns = asyncio.Semaphore(12)

    async def one(client: aiohttp.ClientSession, number: int) -> None:
        async with turns:
            match number % 20:
                case 0:
                    await post_call(client, url, "shout")
                case 1:
                    await disconnect_during_a_call(client, url)
                case 2:
                    await whole_session(client, url)
                case 3:
                    await post_call(client, url, "quits")
                case _:
                    await post_call(client, url, "echo", text=str(number))

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as client:
        await asyncio.gather(*(one(client, number) for number in range(calls)))


async def disconnect_during_a_call(client: aiohttp.ClientSession, url: str) -> None:
    task = asyncio.create_task(post_call(client, url, "slow", seconds=30))
    await asyncio.sleep(0.02)  # the server can be in any state
    task.cancel()
    await asyncio.wait([task])


async def whole_session(client: aiohttp.ClientSession, url: str) -> None:
    headers = await open_session(client, url)
    message = legacy_request("tools/call", {"name": "echo", "arguments": {"text": "x"}})
    async with client.get(url, headers=headers) as stream, client.post(url, json=message, headers=headers) as answer:
        assert (stream.status, answer.status) == (200, 200)
    async with client.delete(url, headers=headers) as response:
        assert response.status == 204


async def lines(daemon: Daemon, calls: int) -> None:
    tools = ["echo"] * 18 + ["shout", "quits"]

    async def send() -> None:
        for number in range(calls):
            tool = tools[number % len(tools)]
            daemon.send(call(tool, request_id=number, **({"text": "x"} if tool == "echo" else {})))
            assert daemon.process.stdin is not None
            await daemon.process.stdin.drain()
            if number % 20 == 19:
                await asyncio.sleep(0.01)  # calls are rejected if the queue is full

    sending = asyncio.create_task(send())
    ids = [(await daemon.receive())["id"] for _ in range(calls)]
    await sending
    assert sorted(ids) == list(range(calls))


def exceeds(after: dict[str, Json], before: dict[str, Json]) -> bool:
    """Return whether any count has increased. A lower count means that `before` included a closing connection."""
    return after["pids"] != before["pids"] or any(after[name] > before[name] for name in (*COUNTED, "descriptors"))


async def counted(daemon: Daemon, url: str) -> dict[str, Json]:
    """Return the counts from the status and /proc, over a connection that is then closed."""
    async with (
        aiohttp.ClientSession() as client,
        client.get(url.replace("/mcp", "/-/status"), headers={"Connection": "close"}) as response,
    ):
        status = await response.json()
    process = Path(f"/proc/{daemon.process.pid}")
    return {
        **{name: status[name] for name in COUNTED},
        "descriptors": len(os.listdir(process / "fd")) - 1,  # noqa: PTH208 - only counts entries
        "pids": (process / "task" / str(daemon.process.pid) / "children").read_text(),
    }
