"""Signals as an init system sends them: calls finish, nothing that hangs holds the exit, and the code is 0."""

import asyncio
import signal
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.daemon import call, post_call, serving, text_of
from tests.e2e.test_standard_streams import is_running, written


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_the_calls_in_flight_finish(config: Path, number: signal.Signals) -> None:
    async with serving(config) as daemon, aiohttp.ClientSession() as client:
        url = await daemon.url()
        slow = asyncio.create_task(post_call(client, url, "slow", seconds=0.5))
        await running(client, url, calls=1)
        daemon.signal(number)
        assert text_of(await slow) == "slept"
        assert await daemon.exit_code(within=10) == 0


async def test_a_signal_lets_the_calls_on_stdio_finish(config: Path) -> None:
    async with serving(config, "--stdio", "--http", "127.0.0.1:0") as daemon, aiohttp.ClientSession() as client:
        daemon.send(call("slow", seconds=0.5))
        await running(client, await daemon.url(), calls=1)
        daemon.signal(signal.SIGTERM)
        assert text_of(await daemon.receive()) == "slept"
        assert await daemon.exit_code(within=10) == 0


@pytest.mark.parametrize("tool", ["stuck", "stubborn"])
async def test_a_plugin_that_hangs_for_ever_does_not_hold_the_exit(config: Path, tool: str) -> None:
    async with serving(config, "--drain-timeout", "200ms") as daemon, aiohttp.ClientSession() as client:
        url = await daemon.url()
        hanging = asyncio.create_task(post_call(client, url, tool))
        await running(client, url, calls=1)
        daemon.signal(signal.SIGTERM)
        assert await daemon.exit_code(within=10) == 0
        await asyncio.wait([hanging])


async def test_a_thread_that_a_plugin_left_behind_does_not_hold_the_exit(config: Path) -> None:
    async with serving(config, "--drain-timeout", "200ms") as daemon, aiohttp.ClientSession() as client:
        assert "left behind" in text_of(await post_call(client, await daemon.url(), "thread"))
        daemon.signal(signal.SIGTERM)
        assert await daemon.exit_code(within=10) == 0


async def test_a_plugin_that_blocks_the_loop_does_not_hold_the_exit(config: Path, tmp_path: Path) -> None:
    async with serving(config, "--stdio", "--drain-timeout", "200ms") as daemon:
        assert text_of(await daemon.ask(call("echo", text="ready"))) == "ready"
        daemon.send(call("blocking", path=str(tmp_path / "mark")))
        await written(tmp_path / "mark")
        daemon.signal(signal.SIGTERM)
        assert await daemon.exit_code(within=20) == 0


async def test_a_second_signal_leaves_at_once_and_takes_the_children_along(config: Path, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with serving(config, "--drain-timeout", "60s") as daemon, aiohttp.ClientSession() as client:
        hanging = asyncio.create_task(post_call(client, await daemon.url(), "deaf", path=str(pids)))
        await written(pids)
        daemon.signal(signal.SIGTERM)
        await daemon.event("stopping")
        daemon.signal(signal.SIGTERM)
        assert await daemon.exit_code(within=8) == 128 + signal.SIGTERM
        await asyncio.wait([hanging])
    async with asyncio.timeout(20):
        while any(is_running(int(pid)) for pid in pids.read_text().split()):
            await asyncio.sleep(0.01)


async def test_children_are_gone_when_the_daemon_is(config: Path, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with serving(config, "--drain-timeout", "100ms") as daemon, aiohttp.ClientSession() as client:
        hanging = asyncio.create_task(post_call(client, await daemon.url(), "deaf", path=str(pids)))
        await written(pids)
        daemon.signal(signal.SIGTERM)
        assert await daemon.exit_code(within=15) == 0
        await asyncio.wait([hanging])
    for pid in pids.read_text().split():
        assert not is_running(int(pid))


async def running(client: aiohttp.ClientSession, url: str, *, calls: int) -> None:
    """Wait until so many calls run."""
    async with asyncio.timeout(10):
        while True:
            async with client.get(url.replace("/mcp", "/-/status")) as response:
                if (await response.json())["calls_running"] >= calls:
                    return
