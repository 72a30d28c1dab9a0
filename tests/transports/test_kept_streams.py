"""How much of what was said in a session is kept, and what an event id leads to. No connections."""

from datetime import timedelta

from structlog.testing import capture_logs

from gateway.transports.refusal import Refusal
from gateway.transports.streamable_http.kept_streams import Cursor, KeptStreams, ReplayBounds, ReplayRoom
from gateway.transports.streamable_http.session_stream import SessionStream


def said_on(kept: KeptStreams, *frames: bytes, stream: SessionStream | None = None) -> SessionStream:
    """A stream that has come to rest after these events."""
    stream = stream or kept.open(answers_request=False)
    for frame in frames:
        stream.last += 1
        kept.keep(stream, frame)
    return stream


def at(stream: SessionStream, number: int) -> str:
    return f"{stream.number:x}-{number}"


def found(kept: KeptStreams, event_id: str) -> list[bytes] | str:
    match kept.find(event_id):
        case Cursor(stream, after):
            return stream.after(after)
        case Refusal(status=status):
            return f"refused {status}"
        case None:
            return "nothing"


async def test_what_came_after_an_event_is_found_and_nothing_else() -> None:
    kept = KeptStreams(ReplayRoom(ReplayBounds()), primes=True)
    one, other = said_on(kept, b"a", b"b", b"c"), said_on(kept, b"x")
    assert found(kept, at(one, 0)) == [b"a", b"b", b"c"]
    assert found(kept, at(one, 2)) == [b"c"]
    assert found(kept, at(one, 3)) == []
    assert found(kept, at(other, 0)) == [b"x"]


async def test_an_id_that_was_never_given_out_here_is_refused() -> None:
    room = ReplayRoom(ReplayBounds())
    kept, others = KeptStreams(room, primes=True), KeptStreams(room, primes=True)
    mine, foreign = said_on(kept, b"a"), said_on(others, b"secret")
    to_come = f"{mine.number + 1:x}-0"
    for event_id in (
        at(foreign, 0),
        at(mine, 2),
        to_come,
        "",
        "-",
        "0-0",
        "x",
        f"{at(mine, 0)} ",
        "é-1",
        "9" * 100_000,
    ):
        assert found(kept, event_id) == "refused 400"


async def test_a_stream_without_a_priming_event_has_no_event_zero() -> None:
    kept = KeptStreams(ReplayRoom(ReplayBounds()), primes=False)
    stream = said_on(kept, b"a")
    assert stream.preamble == b""
    assert found(kept, at(stream, 0)) == "refused 400"
    assert found(kept, at(stream, 1)) == []


async def test_a_stream_keeps_its_newest_events_and_says_so_once() -> None:
    for bounds in (ReplayBounds(stream_events=2), ReplayBounds(stream_bytes=20)):
        kept = KeptStreams(ReplayRoom(bounds), primes=True)
        with capture_logs() as logs:
            stream = said_on(kept, *(b"%d" % number * 10 for number in range(5)))
            assert found(kept, at(stream, 0)) == [b"3" * 10, b"4" * 10]
        assert [entry["event"] for entry in logs] == [
            "events dropped: more was said than is kept for replay",
            "stream resumed with a gap: its oldest events are no longer kept",
        ]
        assert stream.size == 20


async def test_an_event_over_the_bound_is_not_kept_and_costs_nothing() -> None:
    room = ReplayRoom(ReplayBounds(stream_bytes=10))
    stream = said_on(KeptStreams(room, primes=True), b"x" * 11)
    assert (stream.after(0), room.used) == ([], 0)


async def test_over_the_sessions_bounds_finished_streams_go_first_the_oldest_before_the_others() -> None:
    for bounds in (ReplayBounds(session_events=3), ReplayBounds(session_bytes=30)):
        kept = KeptStreams(ReplayRoom(bounds), primes=True)
        running = said_on(kept, b"r" * 10, stream=kept.open(answers_request=True))
        oldest, newer = said_on(kept, b"o" * 10), said_on(kept, b"n" * 10)
        said_on(kept, b"R" * 10, stream=running)
        assert found(kept, at(oldest, 0)) == "nothing"
        assert found(kept, at(newer, 0)) == [b"n" * 10]
        assert found(kept, at(running, 0)) == [b"r" * 10, b"R" * 10]
        said_on(kept, b"1" * 10, b"2" * 10, stream=running)
        assert found(kept, at(newer, 0)) == "nothing"
        assert found(kept, at(running, 0)) == [b"R" * 10, b"1" * 10, b"2" * 10]


async def test_no_session_pays_for_another_when_the_room_of_all_is_used_up() -> None:
    room = ReplayRoom(ReplayBounds(total_bytes=30))
    first, second = KeptStreams(room, primes=True), KeptStreams(room, primes=True)
    early = said_on(first, b"a" * 20)
    late = said_on(second, b"b" * 10, b"c" * 10)
    assert found(first, at(early, 0)) == [b"a" * 20]
    assert found(second, at(late, 0)) == [b"c" * 10]
    first.close()
    said_on(second, b"d" * 10, stream=late)
    assert found(second, at(late, 1)) == [b"c" * 10, b"d" * 10]
    assert room.used == 20


async def test_what_is_too_old_is_forgotten_with_its_stream() -> None:
    room = ReplayRoom(ReplayBounds(age=timedelta()))
    kept = KeptStreams(room, primes=True)
    stream = said_on(kept, b"a", b"b")
    assert len(kept) == 1
    assert found(kept, at(stream, 1)) == "nothing"
    assert (len(kept), room.used) == (0, 0)


async def test_an_ended_session_keeps_nothing_not_even_what_is_said_later() -> None:
    room = ReplayRoom(ReplayBounds())
    kept = KeptStreams(room, primes=True)
    stream = said_on(kept, b"a")
    kept.close()
    said_on(kept, b"b", stream=stream)
    assert (len(kept), room.used, stream.after(0)) == (0, 0, [])
