"""The log and the status name missing facilities of the platform."""

import os
from pathlib import Path

import aiohttp
import pytest

from gateway import platform_facilities
from gateway.platform_facilities import can_find_processes, missing_facilities, processors_of_affinity
from tests.e2e.daemon import serving
from tests.programs import linux_only

CONFIG = "tools: {greet: {description: Says hello., content: Hello.}}\n"


@linux_only
def test_no_facility_is_missing_on_linux() -> None:
    assert missing_facilities() == {}


def test_missing_facilities_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(platform_facilities, "IS_LINUX", False)
    assert [*missing_facilities()] == ["process tracking", "CPU affinity", "namespaces"]
    assert not can_find_processes()
    assert processors_of_affinity() == os.cpu_count()


async def test_log_and_status_agree(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    async with serving(tmp_path / "config.yaml", "--http", "127.0.0.1:0") as daemon, aiohttp.ClientSession() as client:
        async with client.get((await daemon.url()).replace("/mcp", "/-/status")) as response:
            assert (await response.json())["missing_facilities"] == missing_facilities()
        is_logged = any('"facilities missing"' in line for line in daemon.errors)
        assert is_logged is bool(missing_facilities())
