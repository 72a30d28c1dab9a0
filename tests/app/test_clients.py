"""Counts of clients by era, revision, transport and name."""

import pytest

from gateway.access.identity import ANONYMOUS
from gateway.app.status import MAX_CLIENTS, clients_of
from gateway.json_types import JsonObject
from gateway.protocol.exchange import Binding
from gateway.protocol.session import Session
from gateway.telemetry.logs import title_of


def session(name: str, revision: str = "2025-06-18") -> Session:
    return Session(revision=revision, client_info={"name": name}, capabilities={}, identity=ANONYMOUS)


def test_sessions_are_counted_by_client_revision_and_transport() -> None:
    first, *others = clients_of(
        [
            (Binding.STDIO, session("a")),
            (Binding.STREAMABLE_HTTP, session("a")),
            (Binding.STREAMABLE_HTTP, session("a")),
            (Binding.STREAMABLE_HTTP, session("a", "2025-03-26")),
        ]
    )
    assert first == {
        "client": "a",
        "era": "legacy",
        "revision": "2025-06-18",
        "transport": "streamable-http",
        "sessions": 2,
    }
    assert len(others) == 2


def test_many_client_names_are_combined_in_one_entry() -> None:
    entries = clients_of((Binding.STDIO, session(f"n{n}")) for n in range(MAX_CLIENTS + 30))
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
