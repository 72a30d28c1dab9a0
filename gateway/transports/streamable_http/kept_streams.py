"""The streams of a session, and how much of what was said on them is kept for a client that comes back. No I/O.

Bounded in every direction: events and bytes of a stream, of a session and of all sessions, and by age. What does not
fit pushes out what is older: of the stream itself, or of the session's finished ones; no other session pays for it.
"""

import asyncio
import re
import secrets
from collections import deque
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple

import structlog

from gateway.transports.refusal import Refusal
from gateway.transports.streamable_http.session_stream import SessionStream

log: Final = structlog.get_logger()

_EVENT_ID: Final = re.compile(r"([0-9a-f]{1,16})-([0-9]{1,12})")
_FIRST_NUMBER_BITS: Final = 40
"""Sessions begin to count anywhere, so that another session's event id is none of this one's."""
_FOREIGN: Final = Refusal(status=400, message="Last-Event-ID names no event of this session")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayBounds:
    """How much is kept."""

    stream_events: int = 1000
    stream_bytes: int = 4 * 2**20
    session_events: int = 2000
    session_bytes: int = 8 * 2**20
    total_bytes: int = 256 * 2**20
    age: timedelta = timedelta(minutes=10)


class ReplayRoom:
    """What all sessions share."""

    __slots__ = ("bounds", "used")

    def __init__(self, bounds: ReplayBounds) -> None:
        self.bounds: Final = bounds
        self.used = 0
        """Bytes."""


class Cursor(NamedTuple):
    """A place in a stream."""

    stream: SessionStream
    after: int


class KeptStreams:
    """By number, the streams of one session on which something may still be said, or is still kept."""

    __slots__ = ("_events", "_first", "_has_dropped", "_is_closed", "_next", "_room", "_size", "_streams", "primes")

    def __init__(self, room: ReplayRoom, *, primes: bool) -> None:
        self.primes: Final = primes
        self._room: Final = room
        self._first: Final = secrets.randbits(_FIRST_NUMBER_BITS)
        self._next = self._first
        self._streams: Final[dict[int, SessionStream]] = {}
        self._events = 0
        self._size = 0
        self._has_dropped = False
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._streams)

    def open(self, *, answers_request: bool) -> SessionStream:
        number = self._next
        self._next += 1
        stream = self._streams[number] = SessionStream(number, keeper=self, answers_request=answers_request)
        return stream

    def find(self, event_id: str) -> Cursor | Refusal | None:
        """The place after an event; None if nothing came after it, or what came is no longer kept."""
        match = _EVENT_ID.fullmatch(event_id)
        if match is None or not self._first <= (number := int(match[1], 16)) < self._next:
            return _FOREIGN
        self.expire()
        stream, after = self._streams.get(number), int(match[2])
        if stream is None:
            log.debug("stream not resumed: its events are no longer kept", event_id=event_id)
            return None
        if after > stream.last or (after == 0 and not self.primes):
            return _FOREIGN
        lost = stream.last - len(stream.frames or ()) - after
        if lost > 0:
            log.warning("stream resumed with a gap: its oldest events are no longer kept", events=lost)
        if stream.is_over and after == stream.last:
            return None
        return Cursor(stream, after)

    def fits(self, frame: bytes) -> bool:
        return len(frame) <= self._room.bounds.stream_bytes

    def keep(self, stream: SessionStream, frame: bytes) -> None:
        if self._is_closed:
            return
        if stream.frames is None:
            stream.frames = deque()
        self._streams[stream.number] = stream  # it may have been forgotten while somebody came back for it
        stream.frames.append((asyncio.get_running_loop().time(), frame))
        self._count(stream, len(frame), events=1)
        bounds = self._room.bounds
        while stream.size > bounds.stream_bytes or len(stream.frames) > bounds.stream_events:
            self._drop_oldest(stream)
        while stream.frames and (
            self._size > bounds.session_bytes
            or self._events > bounds.session_events
            or self._room.used > bounds.total_bytes
        ):
            others = (other for other in self._streams.values() if other.is_at_rest and other is not stream)
            self._drop_oldest(next(others, stream))

    def rest(self, stream: SessionStream) -> None:
        if not stream.frames and stream.is_at_rest:
            self._streams.pop(stream.number, None)

    def expire(self) -> None:
        """Forget what is too old."""
        oldest = asyncio.get_running_loop().time() - self._room.bounds.age.total_seconds()
        for stream in list(self._streams.values()):
            while stream.frames and stream.frames[0][0] <= oldest:
                self._forget_oldest(stream)

    def close(self) -> None:
        """Forget everything, and keep nothing more."""
        self._is_closed = True
        for stream in list(self._streams.values()):
            while stream.frames:
                self._forget_oldest(stream)
        self._streams.clear()

    def _drop_oldest(self, stream: SessionStream) -> None:
        if not self._has_dropped:
            self._has_dropped = True
            log.warning("events dropped: more was said than is kept for replay", bytes=self._size, events=self._events)
        self._forget_oldest(stream)

    def _forget_oldest(self, stream: SessionStream) -> None:
        assert stream.frames is not None  # noqa: S101 - only asked for where there are some
        _, frame = stream.frames.popleft()
        self._count(stream, -len(frame), events=-1)
        self.rest(stream)

    def _count(self, stream: SessionStream, size: int, *, events: int) -> None:
        stream.size += size
        self._size += size
        self._events += events
        self._room.used += size
