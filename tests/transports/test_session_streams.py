"""Tests for the limits of kept events and for event ids. No connections."""

import gc
import time
from datetime import timedelta

from msgspec.structs import replace

from gateway.access.identity import Credential
from gateway.protocol.exchange import Binding, Caller, Reply
from gateway.state.replica import Replica
from gateway.transports.errors import HttpError
from gateway.transports.sse.event_copies import EventCopies, RemotePlace
from gateway.transports.sse.session_streams import Cursor, EventStore, ReplayBounds, ReplayQuota, SessionStream
from gateway.wire.jsonrpc import Request
from tests.captured_logs import capture_logs
from tests.ports import free_port

CALLER = Caller(binding=Binding.STREAMABLE_HTTP)


def stream_of(kept: EventStore, request_id: str | int | None = None) -> SessionStream:
    """Return a stream for a request with this id, or for messages that belong to no request."""
    stream = SessionStream(kept, CALLER, None if request_id is None else Request(request_id, "tools/call", {}))
    assert stream.number
    return stream


def said_on(kept: EventStore, *frames: bytes, stream: SessionStream | None = None) -> SessionStream:
    """Return a finished stream with these events."""
    stream = stream or stream_of(kept)
    for frame in frames:
        stream.last += 1
        kept.keep(stream, frame)
    return stream


def at(stream: SessionStream, number: int) -> str:
    return f"p-{stream.number:x}-{number}"


async def found(kept: EventStore, event_id: str) -> list[bytes] | str:
    match kept.find(event_id):
        case Cursor(stream, after):
            return stream.after(after)
        case HttpError(status=status):
            return f"refused {status}"
        case RemotePlace(answers=request_id):
            return "remote" if request_id is None else f"lost {request_id}"
        case None:
            return "nothing"


async def test_find_returns_only_the_events_after_an_event() -> None:
    kept = EventStore(ReplayQuota(ReplayBounds()), sends_priming_event=True)
    one, other = said_on(kept, b"a", b"b", b"c"), said_on(kept, b"x")
    assert await found(kept, at(one, 0)) == [b"a", b"b", b"c"]
    assert await found(kept, at(one, 2)) == [b"c"]
    assert await found(kept, at(one, 3)) == []
    assert await found(kept, at(other, 0)) == [b"x"]


async def test_stream_of_another_process_continues_unless_its_response_is_lost() -> None:
    quota = ReplayQuota(ReplayBounds())
    before = EventStore(quota, sends_priming_event=True, process="before")
    now = EventStore(quota, sends_priming_event=True, process="now")

    def primed(request_id: str | int | None) -> str:
        return stream_of(before, request_id).preamble().decode().partition("\n")[0].removeprefix("id: ")

    assert await found(now, primed(None)) == "remote"
    assert await found(now, primed(7)) == "lost 7"
    assert await found(now, primed("–")) == "lost –"
    assert await found(now, primed("x" * 1000)) == "remote"
    for forged in ("before-1-1-W10", "before-1-1-_", "before-1-1-"):
        assert await found(now, forged) in {"remote", "refused 400"}


async def test_unknown_event_id_is_rejected() -> None:
    quota = ReplayQuota(ReplayBounds())
    kept, others = EventStore(quota, sends_priming_event=True), EventStore(quota, sends_priming_event=True)
    mine, foreign = said_on(kept, b"a"), said_on(others, b"secret")
    to_come = f"p-{mine.number + 1:x}-0"
    for event_id in (
        at(foreign, 0),
        at(mine, 2),
        to_come,
        "",
        "-",
        "0-0",
        "p-0-0",
        "x",
        f"{at(mine, 0)} ",
        "é-1",
        "9" * 100_000,
    ):
        assert await found(kept, event_id) == "refused 400"


async def test_stream_without_priming_event_has_no_event_zero() -> None:
    kept = EventStore(ReplayQuota(ReplayBounds()), sends_priming_event=False)
    stream = said_on(kept, b"a")
    assert stream.preamble() == b""
    assert await found(kept, at(stream, 0)) == "refused 400"
    assert await found(kept, at(stream, 1)) == []


async def test_full_stream_keeps_its_newest_events_and_warns_once() -> None:
    for bounds in (ReplayBounds(stream_events=2), ReplayBounds(stream_bytes=20)):
        kept = EventStore(ReplayQuota(bounds), sends_priming_event=True)
        with capture_logs() as logs:
            stream = said_on(kept, *(b"%d" % number * 10 for number in range(5)))
            assert await found(kept, at(stream, 0)) == [b"3" * 10, b"4" * 10]
        assert [entry["event"] for entry in logs] == [
            "events dropped: replay buffer is full",
            "stream resumed with a gap: its oldest events are no longer kept",
        ]
        assert stream.size == 20


async def test_event_over_the_limit_is_not_stored() -> None:
    quota = ReplayQuota(ReplayBounds(stream_bytes=10))
    stream = said_on(EventStore(quota, sends_priming_event=True), b"x" * 11)
    assert (stream.after(0), quota.used) == ([], 0)


async def test_session_over_its_limit_drops_finished_streams_first() -> None:
    for bounds in (ReplayBounds(session_events=3), ReplayBounds(session_bytes=30)):
        kept = EventStore(ReplayQuota(bounds), sends_priming_event=True)
        running = said_on(kept, b"r" * 10, stream=stream_of(kept, 1))
        oldest, newer = said_on(kept, b"o" * 10), said_on(kept, b"n" * 10)
        said_on(kept, b"R" * 10, stream=running)
        assert await found(kept, at(oldest, 0)) == "nothing"
        assert await found(kept, at(newer, 0)) == [b"n" * 10]
        assert await found(kept, at(running, 0)) == [b"r" * 10, b"R" * 10]
        said_on(kept, b"1" * 10, b"2" * 10, stream=running)
        assert await found(kept, at(newer, 0)) == "nothing"
        assert await found(kept, at(running, 0)) == [b"R" * 10, b"1" * 10, b"2" * 10]


async def test_total_limit_drops_the_events_of_the_oldest_streams_first() -> None:
    quota = ReplayQuota(ReplayBounds(total_bytes=40))
    first, second = EventStore(quota, sends_priming_event=True), EventStore(quota, sends_priming_event=True)
    early = said_on(first, b"a" * 20, b"b" * 10)
    late = said_on(second, b"c" * 10)
    said_on(second, b"d" * 10, stream=late)
    assert await found(first, at(early, 0)) == [b"b" * 10]
    assert await found(second, at(late, 0)) == [b"c" * 10, b"d" * 10]
    assert (quota.used, len(quota.streams)) == (30, 2)
    first.close()
    assert (quota.used, len(quota.streams)) == (20, 1)


async def test_abandoned_sessions_stay_within_the_total_limit() -> None:
    quota = ReplayQuota(ReplayBounds())
    stores = [EventStore(quota, sends_priming_event=True) for _ in range(200)]
    for each in stores:
        said_on(each, *[b"x" * 60_000] * 10)
        assert quota.used <= 64 * 2**20
    for each in stores:
        each.close()
    assert (quota.used, quota.streams) == (0, {})


async def test_expired_events_are_forgotten_with_their_stream() -> None:
    quota = ReplayQuota(ReplayBounds(age=timedelta()))
    kept = EventStore(quota, sends_priming_event=True)
    stream = said_on(kept, b"a", b"b")
    assert len(kept) == 1
    assert await found(kept, at(stream, 1)) == "nothing"
    assert (len(kept), quota.used) == (0, 0)


async def test_ended_session_has_no_events() -> None:
    quota = ReplayQuota(ReplayBounds())
    kept = EventStore(quota, sends_priming_event=True)
    stream = said_on(kept, b"a")
    kept.close()
    said_on(kept, b"b", stream=stream)
    assert (len(kept), quota.used, stream.after(0)) == (0, 0, [])


async def test_failing_event_copies_are_logged_once() -> None:
    async with Replica(f"redis://127.0.0.1:{free_port()}", clock=time.time) as replica:
        copies = EventCopies(replica, max_events=1000, age=timedelta(minutes=10))
        with capture_logs() as logs:
            for number in range(64):
                copies.write("session", 1, number, b"x" * 2**20)
        await copies.close()
    assert [each["event"] for each in logs] == ["events not copied: the store does not accept them"]


async def test_finished_stream_keeps_neither_its_message_nor_its_credential() -> None:
    kept = EventStore(ReplayQuota(ReplayBounds()), sends_priming_event=True)
    caller = replace(CALLER, headers={"x": "y"}, access_token=Credential("secret", is_bearer=True))
    message = Request(1, "tools/call", {"large": "x"})
    stream = SessionStream(kept, caller, message)
    said_on(kept, b"a", stream=stream)
    stream.finish(Reply(body=b"{}"))
    assert message not in gc.get_referents(stream, vars(stream))
    assert (stream.caller.headers, stream.caller.access_token) == ({}, None)


async def test_stream_with_the_newest_event_is_the_last_to_lose_events() -> None:
    kept = EventStore(ReplayQuota(ReplayBounds(total_bytes=1000)), sends_priming_event=True)
    first = said_on(kept, b"x" * 100)
    others = [said_on(kept, b"y" * 100) for _ in range(9)]
    said_on(kept, b"z" * 100, stream=first)
    assert first.frames is not None
    assert [frame for _, frame in first.frames][-1] == b"z" * 100
    assert not others[0].frames
