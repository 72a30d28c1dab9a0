"""Notifications that clients get when the file is saved and when the daemon stops."""

import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.behaviour.cells import LATEST, STDIO, Cell, cells
from tests.behaviour.conftest import CONFIG, NewClient
from tests.behaviour.daemons import one_process, serving
from tests.behaviour.test_announcements import ACKNOWLEDGED, SUBSCRIPTION, listening
from tests.e2e.daemon import Daemon
from tests.requirements import requirement

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A copy of the file that the test can change."""
    return Path(shutil.copytree(CONFIG.parent, tmp_path / "house", ignore=shutil.ignore_patterns("__pycache__"))) / (
        CONFIG.name
    )


@pytest_asyncio.fixture(loop_scope="session")
async def daemon(cell: Cell, config: Path) -> AsyncIterator[Daemon]:
    async with serving(config, *(["--stdio"] if cell.binding == STDIO else [])) as daemon:
        yield daemon


@one_process("standard streams belong to one process")
@requirement("subscriptions/server-ends")
async def test_removed_view_ends_its_stdio_subscription(config: Path, new_client: NewClient) -> None:
    plain = config.read_text()
    config.write_text(plain + "views:\n  part: {include: {tools: [say]}}\n")
    cell = Cell(binding=STDIO, revision=LATEST)
    async with serving(config, "--stdio", "--view", "part") as daemon:
        client = await new_client(cell, daemon=daemon)
        call = await listening(client, toolsListChanged=True)
        config.write_text(plain)
        daemon.signal(signal.SIGHUP)
        result = (await call.answer()).result
        assert result["_meta"][SUBSCRIPTION] == call.id
        assert [params["requestId"] for params in call.seen("notifications/cancelled")] == [call.id]


@cells(since=LATEST)
@requirement("subscriptions/server-ends")
async def test_stopping_daemon_ends_subscriptions_with_a_result(
    cell: Cell, daemon: Daemon, new_client: NewClient
) -> None:
    client = await new_client(cell, daemon=daemon)
    call = await client.start("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    await call.notification(ACKNOWLEDGED)
    daemon.signal(signal.SIGTERM)
    result = (await call.answer()).result
    assert result["resultType"] == "complete"
    assert result["_meta"][SUBSCRIPTION] == call.id
    cancelled = [params["requestId"] for params in call.seen("notifications/cancelled")]
    assert cancelled == ([] if cell.is_http else [call.id])
    assert await daemon.exit_code() == 0
