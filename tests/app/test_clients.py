"""Counts of clients by era, revision, transport and name."""

from pathlib import Path
from typing import Any

import pytest

from gateway.access.identity import ANONYMOUS
from gateway.app.status import MAX_CLIENTS, listed, with_sessions
from gateway.catalog.store import CatalogStore
from gateway.json_types import JsonObject
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.exchange import Binding
from gateway.protocol.session import Session
from gateway.state.keys import SigningKeys
from gateway.telemetry.logs import title_of
from gateway.telemetry.metrics import RECENT_SECONDS, CallMetrics
from gateway.transports.memory import MemoryClient
from tests.protocol.peers import serve_folder


def session(name: str, revision: str = "2025-06-18") -> Session:
    return Session(revision=revision, client_info={"name": name}, capabilities={}, identity=ANONYMOUS)


def test_sessions_are_counted_by_client_revision_and_transport() -> None:
    kinds = with_sessions(
        [
            (Binding.STDIO, session("a")),
            (Binding.STREAMABLE_HTTP, session("a")),
            (Binding.STREAMABLE_HTTP, session("a")),
            (Binding.STREAMABLE_HTTP, session("a", "2025-03-26")),
        ]
    )
    first, *others = listed(kinds, counted="sessions")
    assert first == {
        "client": "a",
        "era": "legacy",
        "revision": "2025-06-18",
        "transport": "streamable-http",
        "sessions": 2,
    }
    assert len(others) == 2


def test_many_client_names_are_combined_in_one_entry() -> None:
    entries = listed(
        with_sessions((Binding.STDIO, session(f"n{n}")) for n in range(MAX_CLIENTS + 30)), counted="sessions"
    )
    assert len(entries) == MAX_CLIENTS + 1
    assert entries[-1] == {"client": None, "kinds": 30, "sessions": 30}
    assert sum(entry["sessions"] for entry in entries) == MAX_CLIENTS + 30


@pytest.mark.parametrize(
    ("info", "title"),
    [
        ({"name": "ed", "version": "1"}, "ed 1"),
        ({"name": "ed"}, "ed"),
        ({}, "unnamed"),
        ({"name": 7, "version": ["x"]}, "unnamed"),
        ({"name": "x" * 500}, "x" * 60),
    ],
)
def test_client_title_is_sanitized(info: JsonObject, title: str) -> None:
    assert title_of(info) == title


async def test_modern_clients_are_counted_by_recent_calls(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("tools: {hello: {description: H., content: h}}")
    now = [0.0]
    metrics = CallMetrics(clock=lambda: now[0])
    async with serve_folder(tmp_path) as served:
        dispatcher = Dispatcher(
            store=CatalogStore(served.dispatcher.store.current),
            services=served.dispatcher._server.services,
            keys=SigningKeys([b"k"]),
            observers=[metrics],
        )

        async def call(name: str) -> dict[str, Any]:
            return await MemoryClient(dispatcher, client_info={"name": name}).request("tools/call", {"name": "hello"})

        await call("a")
        now[0] = RECENT_SECONDS / 2
        await call("b")
        await call("b")
        assert {kind[3]: calls for kind, calls in metrics.recent_clients().items()} == {"a": 1, "b": 2}
        now[0] = RECENT_SECONDS + 1
        assert {kind[3]: calls for kind, calls in metrics.recent_clients().items()} == {"b": 2}
        for number in range(500):
            await call(f"n{number}")
        assert len(metrics.recent_clients()) <= 200
