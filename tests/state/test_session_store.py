"""Tests for all implementations of `SessionStore`."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from gateway.state.redis_sessions import RedisSessionStore
from gateway.state.replica import Replica
from gateway.state.session_store import SessionRecord, SessionStore
from gateway.state.state import DaemonState
from tests.redis_server import redis_server

SECONDS: Final = 20.0
RECORD: Final = SessionRecord(
    expires=200.0,
    log_level="info",
    is_initialized=True,
    subscriptions=frozenset({"file:///a", "file:///b"}),
    lists={"tools": "abc"},
)


class Now:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@asynccontextmanager
async def opened(kind: str, now: Now, folder: Path) -> AsyncIterator[SessionStore]:
    if kind == "redis":
        async with asyncio.timeout(60), redis_server(folder / "redis") as server, Replica(server.url, clock=now) as it:
            await it.open()
            yield InTurn(it.sessions)
        return
    async with asyncio.timeout(30), DaemonState(folder if kind == "file" else None, clock=now) as state:
        yield state.sessions


class InTurn:
    """A shared store whose writes complete before the next operation."""

    def __init__(self, store: RedisSessionStore) -> None:
        self._store = store
        self.is_shared, self.has_all_records = store.is_shared, store.has_all_records

    async def load(self, nonce: str) -> SessionRecord | None:
        await self._store.close()
        return await self._store.load(nonce)

    async def save(self, nonce: str, record: SessionRecord, *, before: SessionRecord | None = None) -> None:
        await self._store.close()
        await self._store.save(nonce, record, before=before)

    def save_soon(self, records: Mapping[str, SessionRecord], *, before: Mapping[str, SessionRecord]) -> None:
        self._store.save_soon(records, before=before)

    def release(self, nonce: str) -> None:
        self._store.release(nonce)

    def forget_expired(self) -> None:
        self._store.forget_expired()


@pytest.fixture(params=["memory", "file", "redis"])
async def store(request: pytest.FixtureRequest, now: Now, tmp_path: Path) -> AsyncIterator[SessionStore]:
    async with opened(request.param, now, tmp_path) as it:
        yield it


@pytest.fixture
def now() -> Now:
    return Now()


async def test_saved_record_is_loaded(store: SessionStore) -> None:
    await store.save("a", RECORD)
    store.save_soon({"b": RECORD, "c": SessionRecord(expires=150.0)}, before={})
    assert [await store.load(nonce) for nonce in "abcd"] == [RECORD, RECORD, SessionRecord(expires=150.0), None]


async def test_last_saved_record_is_loaded(store: SessionStore) -> None:
    store.save_soon({"a": RECORD}, before={})
    await store.save("a", SessionRecord(expires=300.0))
    assert await store.load("a") == SessionRecord(expires=300.0)


async def test_expired_record_is_forgotten(store: SessionStore, now: Now) -> None:
    await store.save("a", RECORD)
    now.seconds = 200.0
    assert await store.load("a") is None
    store.forget_expired()
    now.seconds = 100.0
    await store.save("b", RECORD)
    assert await store.load("b") == RECORD


async def test_end_of_a_session_is_not_overwritten(store: SessionStore) -> None:
    ended = SessionRecord(expires=200.0, is_ended=True)
    await store.save("a", ended)
    store.save_soon({"a": RECORD}, before={})
    await store.save("a", RECORD)
    assert await store.load("a") == ended


async def test_session_file_survives_a_restart_and_drops_expired_rows(tmp_path: Path, now: Now) -> None:
    async with opened("file", now, tmp_path) as store:
        await store.save("a", RECORD)
        await store.save("b", SessionRecord(expires=101.0))
        assert store.has_all_records
    async with opened("file", now, tmp_path) as store:
        assert await store.load("a") == RECORD
        now.seconds = 150.0
        store.forget_expired()
        now.seconds = 100.0
        assert await store.load("b") is None


async def test_memory_store_does_not_know_the_past(now: Now, tmp_path: Path) -> None:
    async with opened("memory", now, tmp_path) as store:
        assert not store.has_all_records


async def test_constant_writes_do_not_delay_return_callbacks(tmp_path: Path, now: Now) -> None:
    async with redis_server(tmp_path / "redis") as server, Replica(server.url, clock=now) as replica:

        async def write_on(nonce: str) -> None:
            while True:
                replica.sessions.save_soon({nonce: RECORD}, before={})
                await replica.store.command("PING")

        writing = [asyncio.create_task(write_on(str(number))) for number in range(20)]
        await replica.sessions.load("0")  # they are writing now
        try:
            async with asyncio.timeout(SECONDS):
                await replica.open()
        finally:
            for task in writing:
                task.cancel()
