"""Keeps the events of a session's streams for clients that resume them (`Last-Event-ID`). In memory, no I/O.

Bounded in every direction: events and bytes of a stream and of a session, bytes of all sessions, and by age. What does
not fit in a session pushes out its own older events, those of finished streams first. What does not fit in all sessions
together pushes out the oldest events of any of them.
"""

import asyncio
import base64
import re
import secrets
from datetime import timedelta
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

import msgspec
import orjson
import structlog

from gateway.transports.errors import HttpError
from gateway.transports.sse.event_copies import RemotePlace, SessionCopies
from gateway.transports.sse.session_stream import SessionStream
from gateway.wire.jsonrpc import RequestId

log: Final = structlog.get_logger()

_EVENT_ID: Final = re.compile(r"([0-9a-z]{1,32})-([0-9a-f]{1,16})-([0-9]{1,12})(?:-([A-Za-z0-9_-]{1,172}))?")
"""The process, the stream, the event, and the id of the request that the stream answers."""
_MAX_REQUEST_ID: Final = 128
"""Bytes of a request id that event ids carry."""
_FIRST_NUMBER_BITS: Final = 40
"""Sessions begin to count anywhere, so that another session's event id is none of this one's."""
_FOREIGN: Final = HttpError(status=400, message="Last-Event-ID names no event of this session")


class ReplayBounds(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of what is kept."""

    stream_events: int = 1000
    stream_bytes: int = 4 * 2**20
    session_events: int = 2000
    session_bytes: int = 8 * 2**20
    total_bytes: int = 64 * 2**20
    age: timedelta = timedelta(minutes=10)


class ReplayQuota:
    """The bytes that all sessions keep together."""

    __slots__ = ("_has_dropped", "bounds", "streams", "used")

    def __init__(self, bounds: ReplayBounds) -> None:
        self.bounds: Final = bounds
        self.used = 0
        """Bytes."""
        self.streams: Final[dict[SessionStream, EventStore]] = {}
        """The streams of which events are kept, each with its store."""
        self._has_dropped = False

    def add(self, size: int) -> None:
        self.used += size

    def make_room(self) -> None:
        """Drop the oldest events until an eighth of the room is free, so that this is seldom needed."""
        if not self._has_dropped:  # once, and not for each of the thousands that may follow
            self._has_dropped = True
            log.warning("events dropped: all sessions together keep too many for replay", bytes=self.used)
        oldest = [(stream.frames[0][0], number, stream) for number, stream in enumerate(self.streams) if stream.frames]
        heapify(oldest)
        while self.used > self.bounds.total_bytes * 7 // 8 and oldest:
            _, number, stream = heappop(oldest)
            self.streams[stream].forget_oldest(stream)
            if stream.frames:
                heappush(oldest, (stream.frames[0][0], number, stream))


class Cursor(NamedTuple):
    """A place in a stream."""

    stream: SessionStream
    after: int


class LostAnswer(NamedTuple):
    """The end of a stream that went down with its process, before the request was answered."""

    request_id: str | int


class EventStore:
    """The streams of one session, by number, and the events that are kept of them.

    An event id is the store's to read: one that names the process which holds the stream is an address.
    """

    __slots__ = (
        "_copies",
        "_events",
        "_first",
        "_has_dropped",
        "_is_closed",
        "_next",
        "_process",
        "_room",
        "_size",
        "_streams",
        "sends_priming_event",
    )

    def __init__(
        self,
        room: ReplayQuota,
        *,
        sends_priming_event: bool,
        process: str = "p",
        copies: SessionCopies | None = None,
    ) -> None:
        """Keep nothing yet; `process` is the name of this one and its start, `copies` are read by others."""
        self._copies: Final = copies
        self._process: Final = process
        self.sends_priming_event: Final = sends_priming_event
        self._room: Final = room
        self._first: Final = secrets.randbits(_FIRST_NUMBER_BITS)
        self._next = self._first
        self._streams: Final[dict[int, SessionStream]] = {}
        self._events = 0
        self._size = 0
        self._has_dropped = False
        self._is_closed = False

    def __len__(self) -> int:
        """Count the streams that are not over, or of which events are kept."""
        return len(self._streams)

    def open(self, *, answers_request: bool, request_id: RequestId | None = None) -> SessionStream:
        """Begin a stream: for the answer to a request, or for what belongs to no request."""
        number = self._next
        self._next += 1
        stream = self._streams[number] = SessionStream(
            number,
            store=self,
            answers_request=answers_request,
            process=self._process,
            id_suffix=b"" if request_id is None else _carried(request_id),
        )
        return stream

    def find(self, event_id: str) -> Cursor | RemotePlace | LostAnswer | HttpError | None:
        """Return the place after an event; None if nothing came after it, or what came is no longer kept."""
        match = _EVENT_ID.fullmatch(event_id)
        if match is not None and match[1] != self._process:
            return self._elsewhere(match)
        if match is None or not self._first <= (number := int(match[2], 16)) < self._next:
            return _FOREIGN
        self.expire()
        stream, after = self._streams.get(number), int(match[3])
        if stream is None:
            log.debug("stream not resumed: its events are no longer kept", event_id=event_id)
            return None
        # Event 0 is the priming event.
        if after > stream.last or (after == 0 and not self.sends_priming_event):
            return _FOREIGN
        missing = stream.last - len(stream.frames or ()) - after
        if missing > 0:
            log.warning("stream resumed with a gap: its oldest events are no longer kept", events=missing)
        if stream.is_over and after == stream.last:
            return None
        return Cursor(stream, after)

    def _elsewhere(self, match: re.Match[str]) -> RemotePlace | LostAnswer | None:
        """The place of an event of another process, which may have left copies."""
        lost = _lost_with_its_process(match[4])
        if self._copies is None:
            return lost
        return RemotePlace(match[1], int(match[2], 16), int(match[3]), None if lost is None else lost.request_id)

    def fits(self, frame: bytes) -> bool:
        return len(frame) <= self._room.bounds.stream_bytes

    def keep(self, stream: SessionStream, frame: bytes) -> None:
        if self._is_closed:
            return
        if self._copies is not None:
            self._copies.write(stream.number, stream.last, frame)
        self._room.streams[stream] = self
        self._streams[stream.number] = stream  # it may have been forgotten while a client resumed it
        stream.keep(frame)
        self._count(len(frame), events=1)
        bounds = self._room.bounds
        while stream.size > bounds.stream_bytes or len(stream.frames or ()) > bounds.stream_events:
            self._drop_oldest(stream)
        while stream.frames and (self._size > bounds.session_bytes or self._events > bounds.session_events):
            others = (other for other in self._streams.values() if other.is_at_rest and other is not stream)
            self._drop_oldest(next(others, stream))
        if self._room.used > bounds.total_bytes:
            self._room.make_room()

    def abort_connection(self, number: int) -> bool:
        """Have a stream let go of its connection: another process carries it on. Says whether more will be said."""
        stream = self._streams.get(number)
        if stream is None:
            return False
        stream.abort_connection()
        return not stream.is_over

    def discard_if_done(self, stream: SessionStream) -> None:
        """Forget a stream, if nothing is kept of it and nothing more is said on it."""
        if self._copies is not None and stream.is_over:
            self._copies.end(stream.number, stream.last)
        if not stream.frames and stream.is_at_rest:
            self._streams.pop(stream.number, None)

    def expire(self) -> None:
        """Forget what is too old."""
        oldest = asyncio.get_running_loop().time() - self._room.bounds.age.total_seconds()
        # A copy, for a stream leaves the store with its last event.
        for stream in list(self._streams.values()):
            while stream.frames and stream.frames[0][0] <= oldest:
                self.forget_oldest(stream)

    def close(self) -> None:
        """Forget everything, and keep nothing more."""
        self._is_closed = True
        for stream in list(self._streams.values()):
            while stream.frames:
                self.forget_oldest(stream)
        self._streams.clear()

    def _drop_oldest(self, stream: SessionStream) -> None:
        if not self._has_dropped:
            self._has_dropped = True
            log.warning("events dropped: more was said than is kept for replay", bytes=self._size, events=self._events)
        self.forget_oldest(stream)

    def forget_oldest(self, stream: SessionStream) -> None:
        """Forget the oldest of the events that are kept of a stream."""
        size = stream.forget_oldest()
        if not stream.frames:
            del self._room.streams[stream]
        self._count(-size, events=-1)
        self.discard_if_done(stream)

    def _count(self, size: int, *, events: int) -> None:
        self._size += size
        self._events += events
        self._room.add(size)


def _carried(request_id: RequestId) -> bytes:
    """The part of an event id that says which request the stream answers, should the process not live to do it."""
    written = orjson.dumps(request_id)
    return b"" if len(written) > _MAX_REQUEST_ID else b"-" + base64.urlsafe_b64encode(written).rstrip(b"=")


def _lost_with_its_process(carried: str | None) -> LostAnswer | None:
    """The end of a stream of another process, which this one knows nothing of; None if it answered no request."""
    if carried is None:
        return None
    try:
        request_id = orjson.loads(base64.urlsafe_b64decode(carried + "=" * (-len(carried) % 4)))
    # Clients may send anything; the errors of base64 and of JSON are both such.
    except ValueError:
        return None
    return LostAnswer(request_id) if isinstance(request_id, str | int) else None
