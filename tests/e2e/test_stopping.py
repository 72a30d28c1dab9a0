"""Shutdown by signals: calls finish, hanging calls do not delay the exit, and the exit code is 0."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import aiohttp
import pytest

from gateway.json_types import Json
from tests.e2e.daemon import Daemon, call, post_call, serving, text_of
from tests.e2e.test_standard_streams import written
from tests.programs import is_running, linux_only
from tests.waiting import until


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_lets_http_calls_finish(config: Path, number: signal.Signals) -> None:
    async with serving(config) as daemon, aiohttp.ClientSession() as client:
        url = await daemon.url()
        slow = asyncio.create_task(post_call(client, url, "slow", seconds=0.5))
        await running(client, url, calls=1)
        daemon.signal(number)
        assert text_of(await slow) == "slept"
        assert await daemon.exit_code(within=10) == 0


async def test_signal_lets_stdio_calls_finish(config: Path) -> None:
    async with serving(config, "--stdio", "--http", "127.0.0.1:0") as daemon, aiohttp.ClientSession() as client:
        daemon.send(call("slow", seconds=0.5))
        await running(client, await daemon.url(), calls=1)
        daemon.signal(signal.SIGTERM)
        assert text_of(await daemon.receive()) == "slept"
        assert await daemon.exit_code(within=10) == 0


@pytest.mark.parametrize("tool", ["stuck", "stubborn"])
async def test_hanging_plugin_does_not_block_the_exit(config: Path, tool: str) -> None:
    async with serving(config, "--drain-timeout", "200ms") as daemon, aiohttp.ClientSession() as client:
        url = await daemon.url()
        hanging = asyncio.create_task(post_call(client, url, tool))
        await running(client, url, calls=1)
        daemon.signal(signal.SIGTERM)
        assert await daemon.exit_code(within=10) == 0
        await asyncio.wait([hanging])


async def test_abandoned_plugin_thread_does_not_block_the_exit(config: Path) -> None:
    async with serving(config, "--drain-timeout", "200ms") as daemon, aiohttp.ClientSession() as client:
        assert "left behind" in text_of(await post_call(client, await daemon.url(), "thread"))
        daemon.signal(signal.SIGTERM)
        assert await daemon.exit_code(within=10) == 0


async def test_plugin_that_blocks_the_loop_does_not_block_the_exit(config: Path, tmp_path: Path) -> None:
    async with serving(config, "--stdio", "--drain-timeout", "200ms") as daemon:
        assert text_of(await daemon.ask(call("echo", text="ready"))) == "ready"
        daemon.send(call("blocking", path=str(tmp_path / "mark")))
        await written(tmp_path / "mark")
        daemon.signal(signal.SIGTERM)
        assert await daemon.exit_code(within=20) == 0


async def test_second_signal_exits_at_once_and_ends_children(config: Path, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with serving(config, "--drain-timeout", "60s") as daemon, aiohttp.ClientSession() as client:
        hanging = asyncio.create_task(post_call(client, await daemon.url(), "deaf", path=str(pids)))
        await written(pids)
        daemon.signal(signal.SIGTERM)
        await daemon.event("stopping")
        daemon.signal(signal.SIGTERM)
        assert await daemon.exit_code(within=8) == 128 + signal.SIGTERM
        await asyncio.wait([hanging])
    await until(lambda: not any(is_running(int(pid)) for pid in pids.read_text().split()))


async def test_children_end_before_the_daemon_exits(config: Path, tmp_path: Path) -> None:
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
    """Wait until this number of calls is running."""
    async with asyncio.timeout(10):
        while True:
            async with client.get(url.replace("/mcp", "/-/status")) as response:
                if (await response.json())["calls_running"] >= calls:
                    return


SLOW_START = """
    plugins: [plugins]
    listen: {http: "127.0.0.1:0"}
    tools:
      echo: {python: "slow_start:echo"}
"""


def slow_to_start(tmp_path: Path) -> Path:
    """A file with a plugin that reports the start of its import, and waits until it is released."""
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (plugins / "slow_start.py").write_text(
        "import pathlib, time\n"
        f"here = pathlib.Path({str(tmp_path)!r})\n"
        "(here / 'begun').write_text('begun\\n')\n"
        "while not (here / 'release').exists(): time.sleep(0.01)\n"
        "def echo() -> str: return 'here'\n"
    )
    (tmp_path / "config.yaml").write_text(dedent(SLOW_START))
    return tmp_path / "config.yaml"


HUP_DURING_EXIT = """
    import os, signal

    class HangUp:
        def __del__(self, kill=os.kill, own=os.getpid(), number=signal.SIGHUP, write=os.write):
            kill(own, number)
            write(1, b"sent")

    signal.hang_up = HangUp()
"""


@linux_only
async def test_sighup_at_any_time_never_ends_the_daemon(config: Path) -> None:
    """The signal is sent repeatedly from before the imports until the exit."""
    async with serving(config, is_forked=False) as daemon, aiohttp.ClientSession() as client:
        await wait_for_signal_handlers(daemon.process.pid)
        assert "pydantic" not in Path(f"/proc/{daemon.process.pid}/maps").read_text()
        hanging_up = asyncio.create_task(send_hup_until_exit(daemon))
        assert text_of(await post_call(client, await daemon.url(), "echo", text="here")) == "here"
        daemon.signal(signal.SIGTERM)
        assert await daemon.exit_code() == 0
        await hanging_up


@pytest.mark.parametrize(("argument", "code"), [("--no-such-flag", 2), ("missing.yaml", 2), ("--help", 0)])
def test_sighup_during_exit_does_not_change_the_exit_code(tmp_path: Path, argument: str, code: int) -> None:
    """The signal is sent while the interpreter clears its modules, after its signal handlers are gone."""
    (tmp_path / "sitecustomize.py").write_text(dedent(HUP_DURING_EXIT))
    argv = [sys.executable, "-m", "gateway", "serve", argument]
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    run = subprocess.run(argv, env={**os.environ, "PYTHONPATH": path}, cwd=tmp_path, capture_output=True, check=False)
    assert run.returncode == code
    assert b"sent" in run.stdout


async def test_sighup_during_the_start_reloads_afterwards(tmp_path: Path) -> None:
    async with serving(slow_to_start(tmp_path)) as daemon, aiohttp.ClientSession() as client:
        await written(tmp_path / "begun")
        (tmp_path / "config.yaml").write_text(dedent(SLOW_START) + "  later: {description: New., content: later}\n")
        daemon.signal(signal.SIGHUP)
        (tmp_path / "release").touch()
        url = await daemon.url()
        async with asyncio.timeout(20):
            while (await status_of(client, url))["generation"] == 1:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_during_the_start_ends_the_daemon_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    """The import of a plugin hangs."""
    async with serving(slow_to_start(tmp_path)) as daemon:
        await written(tmp_path / "begun")
        daemon.signal(number)
        assert await daemon.exit_code() == 0
    assert not any("Traceback" in line or '"listening"' in line for line in daemon.errors)


@linux_only
async def test_signal_before_loading_ends_the_daemon_cleanly(config: Path) -> None:
    async with serving(config, is_forked=False) as daemon:
        await wait_for_signal_handlers(daemon.process.pid)
        daemon.signal(signal.SIGTERM)
        assert await daemon.exit_code() == 0
    assert not any("Traceback" in line or '"listening"' in line for line in daemon.errors)


async def wait_for_signal_handlers(pid: int) -> None:
    """Wait until the process handles signals (`SigCgt` in proc_pid_status(5))."""
    async with asyncio.timeout(20):
        while not any(
            line.startswith("SigCgt:") and int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        ):
            await asyncio.sleep(0)


async def send_hup_until_exit(daemon: Daemon) -> None:
    while daemon.process.returncode is None:
        with suppress(ProcessLookupError):
            daemon.signal(signal.SIGHUP)
        await asyncio.sleep(0.001)


async def status_of(client: aiohttp.ClientSession, url: str) -> Json:
    async with client.get(url.replace("/mcp", "/-/status")) as response:
        return await response.json()
