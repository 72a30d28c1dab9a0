"""The state directory of a single daemon, and its errors."""

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson
import pytest

from tests.e2e.daemon import Daemon, serving
from tests.messages import BOTH
from tests.programs import linux_only
from tests.transports.test_streamable_http import event

FILE: Final = """\
listen: {{http: "127.0.0.1:0"}}
tools:
  echo: {{description: {description}, content: [{{text: x}}]}}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(FILE.format(description="Return a text."))
    return path


class Client:
    """A client of 2025-11-25 that only keeps its session id."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self.http: Final = http
        self.fields: Final = {"Accept": BOTH}

    async def post(self, url: str, method: str, **params: Any) -> aiohttp.ClientResponse:
        is_request = not method.startswith("notifications/")
        body = {"jsonrpc": "2.0", "method": method, "params": params, **({"id": 1} if is_request else {})}
        response = await self.http.post(url, json=body, headers=self.fields)
        await response.read()
        return response

    async def initialize(self, url: str) -> None:
        info = {"name": "t", "version": "1"}
        response = await self.post(url, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=info)
        self.fields["Mcp-Session-Id"] = response.headers["Mcp-Session-Id"]
        assert (await self.post(url, "notifications/initialized")).status == 202


@asynccontextmanager
async def client() -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as http:
        yield Client(http)


async def store_of(daemon: Daemon, http: aiohttp.ClientSession) -> Any:
    url = (await daemon.url()).removesuffix("/mcp")
    async with http.get(f"{url}/-/status") as response:
        return (await response.json())["store"]


async def metric(daemon: Daemon, http: aiohttp.ClientSession, name: str) -> float:
    url = (await daemon.url()).removesuffix("/mcp")
    async with http.get(f"{url}/metrics") as response:
        lines = (await response.text()).splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[-1])


async def test_session_of_a_killed_daemon_continues_and_gets_missed_changes(config: Path, tmp_path: Path) -> None:
    state = ("--state-dir", str(tmp_path / "state"))
    async with client() as one, client() as other:
        async with serving(config, *state) as first:
            for each in (one, other):
                await each.initialize(await first.url())
            assert (await one.http.delete(await first.url(), headers=one.fields)).status == 204
            first.signal(signal.SIGKILL)
            await first.exit_code()
        config.write_text(FILE.format(description="Return the same text."))
        async with serving(config, *state) as second:
            url = await second.url()
            assert (await one.post(url, "ping")).status == 404
            stream = await other.http.get(url, headers={**other.fields, "Last-Event-ID": "gone-1-0"})
            assert (await event(stream))["method"] == "notifications/tools/list_changed"
            assert (await other.post(url, "tools/call", name="echo", arguments={})).status == 200
            assert await metric(second, one.http, "mcp_gateway_sessions_restored_total") == 1
            assert await metric(second, one.http, "mcp_gateway_state_durable") == 1
            stream.close()


async def test_second_daemon_serves_without_the_state_directory(config: Path, tmp_path: Path) -> None:
    state = ("--state-dir", str(tmp_path / "state"))
    async with client() as one, serving(config, *state) as first:
        await first.url()
        async with serving(config, *state) as second:
            await one.initialize(await second.url())
            assert (await one.post(await second.url(), "tools/list")).status == 200
            said = await second.event("state is not written; it is kept in memory")
            assert said["problem"] == f"{tmp_path / 'state'} is in use by another daemon"
            assert (await store_of(first, one.http))["durable"] is True
            store = await store_of(second, one.http)
            assert (store["directory"], store["durable"], store["problem"]) == (None, False, said["problem"])
            assert await metric(second, one.http, "mcp_gateway_state_durable") == 0
            assert [line for line in second.errors if "state is written again" in line] == []


async def test_uncreatable_state_directory_is_a_warning(config: Path, tmp_path: Path) -> None:
    async with client() as one, serving(config, "--state-dir", str(config / "below")) as daemon:
        await one.initialize(await daemon.url())
        assert "Not a directory" in (await daemon.event("state is not written; it is kept in memory"))["problem"]
        warnings = [line for line in daemon.errors if "kept in memory" in line]
        assert len(warnings) == 1
        assert "Not a directory" in (await store_of(daemon, one.http))["problem"]
    assert os.listdir(tmp_path) == ["config.yaml"]  # noqa: PTH208 - only names


async def test_state_dir_none_writes_nothing(config: Path, tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "XDG_STATE_HOME": ""}
    async with client() as one, serving(config, "--state-dir", "none", environment=home) as daemon:
        await one.initialize(await daemon.url())
        assert (await store_of(daemon, one.http))["problem"] is None
        # Leftovers of a killed daemon of another test are possible.
        lines = [orjson.loads(line) for line in daemon.errors if "of a killed daemon" not in line]
        assert not [line for line in lines if line["level"] != "info"]
    assert os.listdir(tmp_path) == ["config.yaml"]  # noqa: PTH208 - only names


async def test_state_directory_of_systemd_is_used(config: Path, tmp_path: Path) -> None:
    environment = {"STATE_DIRECTORY": str(tmp_path / "var"), "MCP_GATEWAY_STATE_DIR": ""}
    async with serving(config, environment=environment) as daemon, client() as one:
        await daemon.url()
        assert (await store_of(daemon, one.http))["directory"] == str(tmp_path / "var")
        assert (tmp_path / "var").stat().st_mode & 0o777 == 0o700


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system without free space."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mounted)]
    if os.geteuid() != 0 or subprocess.run(mounting, check=False, capture_output=True).returncode:
        pytest.skip("mounts a file system, which requires root")
    with (mounted / "ballast").open("wb", buffering=0) as filling, suppress(OSError):
        while True:
            filling.write(b"x" * 1024)
    yield mounted
    subprocess.run(["umount", "-l", str(mounted)], check=True)


@linux_only
async def test_full_disk_loses_no_session(config: Path, full_disk: Path) -> None:
    async with client() as one, serving(config, "--state-dir", str(full_disk)) as daemon:
        await one.initialize(await daemon.url())
        assert (await one.post(await daemon.url(), "logging/setLevel", level="error")).status == 200
        assert (await one.post(await daemon.url(), "tools/call", name="echo", arguments={})).status == 200
        assert (await store_of(daemon, one.http))["durable"] is False
