"""Fixtures of the behaviour tests for daemons of these tests."""

import pytest

from tests.behaviour.conftest import http, new_client, processes, schemas, url

__all__ = ["http", "new_client", "processes", "schemas", "url"]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let daemons in this process wait longer for the first lists, because a loaded machine starts servers slowly."""
    monkeypatch.setattr("gateway.app.build.FIRST_LISTS_SECONDS", 60.0)
