"""Notifications that clients get when the file is saved and when the daemon stops."""

import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from gateway.json_types import Json
from tests.behaviour.cells import LATEST, LATEST_LEGACY, STDIO, Cell, cells
from tests.behaviour.client import Call, Client, listed
from tests.behaviour.conftest import CONFIG, NewClient
from tests.behaviour.daemons import one_process, serving
from tests.behaviour.test_announcements import ACKNOWLEDGED, CHANGED, SUBSCRIPTION, UPDATED, listening, open_stream
from tests.e2e.daemon import Daemon
from tests.requirements import requirement

pytestmark = pytest.mark.asyncio(loop_scope="session")

WANTED: Final[dict[str, Json]] = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourceSubscriptions": ["test://note", "test://third"],
}


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


def save(config: Path, *changes: tuple[str, str]) -> None:
    text = config.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    config.write_text(text)


class Listener:
    """Receives announcements as the era requires."""

    def __init__(self, client: Client, call: Call | None) -> None:
        self._client: Final = client
        self._call: Final = call

    async def notification(self, method: str) -> dict[str, Json]:
        if self._call is None:
            return await self._client.notification(method)
        return await self._call.notification(method)

    def received(self, method: str) -> list[Json]:
        return self._client.received(method) if self._call is None else self._call.seen(method)


async def listen(client: Client) -> Listener:
    if client.cell.is_modern:
        return Listener(client, await listening(client, **WANTED))
    await open_stream(client)
    for uri in WANTED["resourceSubscriptions"]:
        await client.ask("resources/subscribe", {"uri": uri})
    return Listener(client, None)


@cells(since=LATEST_LEGACY)
@requirement("list-changed/session", "subscriptions/filter", "pagination/stale-cursor")
async def test_saved_file_announces_only_its_changes(
    cell: Cell, daemon: Daemon, config: Path, new_client: NewClient
) -> None:
    client = await new_client(cell, daemon=daemon)
    listener = await listen(client)
    cursor = (await client.ask("tools/list")).result["nextCursor"]
    save(config, ("content: here", "content: here\n\n  added: {content: new}"))
    daemon.signal(signal.SIGHUP)
    await listener.notification(CHANGED["tools"])
    assert "added" in {tool["name"] for tool in await listed(client, "tools/list", "tools")}
    assert (await client.ask("tools/list", {"cursor": cursor})).error["code"] == -32602
    save(config, ("text: Remember.", "text: Forget."), ("description: One message.", "description: A message."))
    daemon.signal(signal.SIGHUP)
    await listener.notification(CHANGED["prompts"])
    assert (await listener.notification(UPDATED))["uri"] == "test://note"
    [contents] = (await client.ask("resources/read", {"uri": "test://note"})).result["contents"]
    assert contents["text"] == "Forget."
    assert listener.received(CHANGED["tools"]) == []
    assert listener.received(UPDATED) == []


@cells(since=LATEST_LEGACY)
@requirement("list-changed/session")
async def test_invalid_file_changes_nothing_for_clients(
    cell: Cell, daemon: Daemon, config: Path, new_client: NewClient
) -> None:
    client = await new_client(cell, daemon=daemon)
    listener = await listen(client)
    before = await listed(client, "tools/list", "tools")
    save(config, ("content: here", "contents: here"))
    daemon.signal(signal.SIGHUP)
    await daemon.event("reload refused")
    assert await listed(client, "tools/list", "tools") == before
    assert listener.received(CHANGED["tools"]) == []


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
