"""Tests that sessions continue in another process with the same key and store."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from gateway.config.models.auth import Auth
from gateway.state.keys import SigningKeys
from gateway.state.session_store import SessionRecord
from gateway.state.state import DaemonState
from gateway.transports.streamable_http.sessions import SessionPersistence
from tests.messages import legacy_request
from tests.transports.http_server import MemorySessionStore, RunningServer, call, http_server
from tests.transports.test_resuming import next_message, rest
from tests.transports.test_streamable_http import event, in_session, settled

KEYS: Final = SigningKeys([b"a key of sixteen bytes"])
Restart = Callable[[], SessionPersistence]


@pytest.fixture(params=["memory", "file"])
async def restart(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Restart]:
    """The state that a process finds."""
    async with DaemonState(tmp_path if request.param == "file" else None) as state:
        yield lambda: SessionPersistence(keys=KEYS, store=state.sessions, clock=state.clock)


@asynccontextmanager
async def process(restart: Restart, *, auth: Auth | None = None, ttl: float = 3600) -> AsyncIterator[RunningServer]:
    async with asyncio.timeout(30), http_server(persistence=restart(), auth=auth, session_ttl=ttl) as served:
        yield served


async def test_next_process_restores_the_session(restart: Restart) -> None:
    async with process(restart) as first:
        session = await first.initialize("2025-06-18", elicitation={})
    async with process(restart) as second:
        answers = await asyncio.gather(
            *(second.send(call("echo", request_id=number), in_session(session)) for number in range(5))
        )
        assert [answer.status for answer in answers] == [200] * 5
        assert len(second.sessions) == 1
        live = next(iter(second.sessions.open_sessions))
        assert (live.revision, live.client_info) == ("2025-06-18", {"name": "test", "version": "1"})
        assert live.capabilities == {"elicitation": {}}
        assert live.is_initialized
        assert second.sessions.restored == 1


async def test_client_settings_survive_a_restart(restart: Restart) -> None:
    async with process(restart) as first:
        session = await first.initialize()
        answer = await first.send(legacy_request("logging/setLevel", {"level": "error"}), in_session(session))
        assert answer.status == 200
        first.sessions._live.clear()  # killed, so it writes nothing at its end
    async with process(restart) as second:
        assert (await second.send(legacy_request("ping"), in_session(session))).status == 200
        assert next(iter(second.sessions.open_sessions)).log_level == "error"


async def test_deleted_session_is_unknown_to_every_process(restart: Restart) -> None:
    async with process(restart) as first:
        session = await first.initialize()
        assert (await first.send(None, in_session(session), method="DELETE")).status == 204
        assert (await first.send(legacy_request("ping"), in_session(session))).status == 404
    async with process(restart) as second:
        assert (await second.send(legacy_request("ping"), in_session(session))).status == 404
        assert (await second.send(None, in_session(session), method="DELETE")).status == 404


async def test_session_deleted_during_a_restore_is_unknown(restart: Restart) -> None:
    async with process(restart) as first:
        sessions = [await first.initialize() for _ in range(10)]
    async with process(restart) as second:

        async def end(session: str) -> None:
            ping, fields = legacy_request("ping"), in_session(session)
            others = [second.send(ping, fields) for _ in range(4)]
            await asyncio.gather(second.send(None, fields, method="DELETE"), *others)
            assert (await second.send(ping, fields)).status == 404

        await asyncio.gather(*map(end, sessions))
        assert len(second.sessions) == 0


async def test_session_signed_with_another_key_is_unknown(restart: Restart) -> None:
    async with process(restart) as first:
        session = await first.initialize()
    async with http_server() as stranger:
        assert (await stranger.send(legacy_request("ping"), in_session(session))).status == 404


async def test_session_of_another_caller_is_unknown(restart: Restart) -> None:
    auth = Auth.model_validate({"api_keys": {"alice": {"secret": "a" * 32}, "bob": {"secret": "b" * 32}}})
    alice, bob = ({"Authorization": f"Bearer {letter * 32}"} for letter in "ab")
    async with process(restart, auth=auth) as first:
        session = await first.initialize(headers=alice)
    async with process(restart, auth=auth) as second:
        assert (await second.send(legacy_request("ping"), {**in_session(session), **bob})).status == 404
        assert (await second.send(legacy_request("ping"), {**in_session(session), **alice})).status == 200
    async with process(restart) as without_auth:
        assert (await without_auth.send(legacy_request("ping"), in_session(session))).status == 404


async def test_resumed_stream_of_an_earlier_process_continues_with_a_new_one(restart: Restart) -> None:
    async with process(restart) as first:
        session = await first.initialize()
        stream = await first.client.get(first.url, headers=in_session(session))
        await settled(first, streams=1)
        first.dispatcher.notifier.list_changed("tools")
        told = await next_message(stream)
    async with process(restart) as second:
        stream = await second.client.get(second.url, headers=in_session(session, Last_Event_ID=told.id))
        assert stream.status == 200
        await settled(second, streams=1)
        second.dispatcher.notifier.list_changed("prompts")
        assert (await event(stream))["method"] == "notifications/prompts/list_changed"


async def test_response_lost_in_a_restart_is_an_error(restart: Restart) -> None:
    async with process(restart) as first:
        session = await first.initialize()
        waiting = await first.client.post(
            first.url, json=call("wait", request_id="mine", token=1), headers=in_session(session)
        )
        primed = (await waiting.content.readuntil(b"\n\n")).decode().partition("\n")[0].removeprefix("id: ")
        first.control.release.set()
        await waiting.read()
    async with process(restart) as second:
        stream = await second.client.get(second.url, headers=in_session(session, Last_Event_ID=primed))
        (lost,) = await rest(stream)
        assert lost.message["id"] == "mine"
        assert "restarted" in lost.message["error"]["message"]


async def test_expired_session_is_unknown_to_the_next_process(restart: Restart) -> None:
    now = [1000.0]
    clocked = SessionPersistence(keys=KEYS, store=restart().store, clock=lambda: now[0])
    async with process(lambda: clocked, ttl=60) as first:
        session = await first.initialize()
    now[0] += 200
    async with process(lambda: clocked, ttl=60) as second:
        answer = await second.send(legacy_request("ping"), in_session(session))
        assert answer.status == (404 if clocked.store.has_all_records else 200)


class CountingStore(MemorySessionStore):
    """Counts writes."""

    writes = 0

    def save_soon(self, records: Mapping[str, SessionRecord], *, before: Mapping[str, SessionRecord]) -> None:
        self.writes += 1
        super().save_soon(records, before=before)


async def test_plain_call_writes_no_state() -> None:
    store = CountingStore(clock=lambda: 1000.0)
    persistence = SessionPersistence(keys=KEYS, store=store, clock=lambda: 1000.0)
    async with process(lambda: persistence) as served:
        session = await served.initialize()
        before = store.writes
        for number in range(20):
            assert (await served.send(call("echo", request_id=number), in_session(session))).status == 200
        assert store.writes == before
        await served.send(legacy_request("logging/setLevel", {"level": "info"}), in_session(session))
        assert store.writes == before + 1


async def test_clock_set_back_does_not_end_sessions(restart: Restart) -> None:
    now = [10_000.0]
    clocked = SessionPersistence(keys=KEYS, store=restart().store, clock=lambda: now[0])
    async with process(lambda: clocked) as first:
        session = await first.initialize()
    now[0] -= 5000
    async with process(lambda: clocked) as second:
        assert (await second.send(legacy_request("ping"), in_session(session))).status == 200


async def test_session_of_a_removed_caller_is_unknown_to_every_process(restart: Restart) -> None:
    auth = Auth.model_validate({"api_keys": {"alice": {"secret": "a" * 32}}})
    alice = {"Authorization": f"Bearer {'a' * 32}"}
    async with process(restart, auth=auth) as first:
        session = await first.initialize(headers=alice)
        first.server.revalidate(lambda _: None)
    async with process(restart, auth=auth) as second:
        assert (await second.send(legacy_request("ping"), {**in_session(session), **alice})).status == 404


async def test_restored_session_counts_towards_the_limit(restart: Restart) -> None:
    async with process(restart) as first:
        session = await first.initialize()
    async with http_server(persistence=restart(), session_limit=1) as second:
        new = await second.initialize()
        assert (await second.send(legacy_request("ping"), in_session(session))).status == 503
        await second.send(None, in_session(new), method="DELETE")
        assert (await second.send(legacy_request("ping"), in_session(session))).status == 200
