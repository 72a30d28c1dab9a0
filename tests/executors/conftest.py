"""Fixtures for tests of executors."""

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.executors.shared_services import Services, running_services
from tests.executors.recording import RecordingContext, RecordingPermit
from tests.executors.shell_tool import Tool


@pytest.fixture
def context() -> RecordingContext:
    return RecordingContext()


@pytest.fixture
def permit() -> RecordingPermit:
    return RecordingPermit()


@pytest.fixture
async def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Services]:
    """Services with temporary directories below the test's directory."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    async with running_services() as services:
        yield services
    assert list(temporary.iterdir()) == []


@pytest.fixture
def tool(services: Services, tmp_path: Path) -> Tool:
    return Tool(services, tmp_path)
