"""Notifications that systemd receives from a daemon, over a real datagram socket."""

import asyncio
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from tests.e2e.daemon import TIMEOUT_SECONDS, post_call, serving, text_of

FILE: Final = """\
listen: {http: "127.0.0.1:0"}
tools:
  look: {description: Prints the environment., shell: {script: env}}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    config = tmp_path / "config.yaml"
    config.write_text(FILE)
    return config


class Manager:
    """The socket of the service manager."""

    def __init__(self, address: str) -> None:
        self.address: Final = address
        self._socket: Final = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address.replace("@", "\0", 1) if address.startswith("@") else address)
        self._socket.settimeout(0)

    async def heard(self) -> dict[str, str]:
        """Return the next message."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            message = await asyncio.get_running_loop().sock_recv(self._socket, 4096)
        return dict(line.split("=", 1) for line in message.decode().splitlines())

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["file", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    address = str(tmp_path / "notify") if request.param == "file" else f"@mcp-gateway-test-{os.getpid()}-{id(tmp_path)}"
    manager = Manager(address)
    yield manager
    manager.close()


async def test_systemd_is_notified_of_start_reload_and_end(config: Path, manager: Manager) -> None:
    async with serving(config, environment={"NOTIFY_SOCKET": manager.address}) as daemon:
        await daemon.url()
        ready = await manager.heard()
        assert ready["READY"] == "1"

        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        daemon.signal(signal.SIGHUP)
        reloading = await manager.heard()
        assert reloading["RELOADING"] == "1"
        assert int(reloading["MONOTONIC_USEC"]) >= before
        assert (await manager.heard())["READY"] == "1"

        config.write_text("tools: {x: {}}")
        daemon.signal(signal.SIGHUP)
        assert (await manager.heard())["RELOADING"] == "1"
        assert (await manager.heard())["READY"] == "1"

        daemon.signal(signal.SIGTERM)
        assert (await manager.heard())["STOPPING"] == "1"
        assert await daemon.exit_code() == 0


async def test_watchdog_is_notified_while_the_loop_runs(config: Path, manager: Manager) -> None:
    environment = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "100000"}
    async with serving(config, environment=environment):
        heard = [await manager.heard() for _ in range(4)]
        assert sum(message.get("WATCHDOG") == "1" for message in heard) >= 3


async def test_watchdog_of_another_process_is_not_notified(config: Path, manager: Manager) -> None:
    environment = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}
    async with serving(config, environment=environment) as daemon:
        assert (await manager.heard())["READY"] == "1"
        daemon.signal(signal.SIGTERM)
        assert (await manager.heard())["STOPPING"] == "1"


async def test_tool_process_cannot_notify_systemd(config: Path, manager: Manager) -> None:
    environment = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "100000"}
    async with serving(config, environment=environment) as daemon, aiohttp.ClientSession() as client:
        seen = text_of(await post_call(client, await daemon.url(), "look"))
        assert "NOTIFY_SOCKET" not in seen
        assert "WATCHDOG" not in seen


async def test_missing_service_manager_is_ignored(config: Path, tmp_path: Path) -> None:
    async with serving(config, environment={"NOTIFY_SOCKET": str(tmp_path / "nobody")}) as daemon:
        await daemon.url()
        daemon.signal(signal.SIGTERM)
        assert await daemon.exit_code() == 0
