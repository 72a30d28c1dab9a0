"""Stores events in memory for clients that resume a stream (`Last-Event-ID`). No I/O.

Events and bytes are limited per stream and per session. The total size and the age are limited too. A session over its
limit drops its oldest events, starting with finished streams. Over the total limit, the oldest events of all sessions
are dropped.
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

log: Final = structlog.get_logger(__name__)

_EVENT_ID: Final = re.compile(r"([0-9a-z]{1,32})-([0-9a-f]{1,16})-([0-9]{1,12})(?:-([A-Za-z0-9_-]{1,172}))?")
"""The process, the stream, the event, and the id of the stream's request."""
_MAX_REQUEST_ID: Final = 128
"""The maximum size of a request id in an event id, in bytes."""
_FIRST_NUMBER_BITS: Final = 40
"""Stream numbers start at random, so that event ids of other sessions are detected."""
_FOREIGN: Final = HttpError(status=400, message="Last-Event-ID does not name an event of this session")


class ReplayBounds(msgspec.Struct, frozen=True, kw_only=True):
    stream_events: int = 1000
    stream_bytes: int = 4 * 2**20
    session_events: int = 2000
    session_bytes: int = 8 * 2**20
    total_bytes: int = 64 * 2**20
    age: timedelta = timedelta(minutes=10)


class ReplayQuota:
    """The total size of the events of all sessions."""

    __slots__ = ("_has_dropped", "bounds", "streams", "used")

    def __init__(self, bounds: ReplayBounds) -> None:
        self.bounds: Final = bounds
        self.used = 0
        """Bytes."""
        self.streams: Final[dict[SessionStream, EventStore]] = {}
        """The streams with kept events, each with its store."""
        self._has_dropped = False

    def add(self, size: int) -> None:
        self.used += size

    def make_room(self) -> None:
        """Drop the oldest events until an eighth of the total is free."""
        if not self._has_dropped:  # Warn only once, because later events exceed the limit too.
            self._has_dropped = True
            log.warning("events dropped: the replay buffers exceed their total size limit", bytes=self.used)
        oldest = [(stream.frames[0][0], number, stream) for number, stream in enumerate(self.streams) if stream.frames]
        heapify(oldest)
        while self.used > self.bounds.total_bytes * 7 // 8 and oldest:
            _, number, stream = heappop(oldest)
            self.streams[stream].forget_oldest(stream)
            if stream.frames:
                heappush(oldest, (stream.frames[0][0], number, stream))


class Cursor(NamedTuple):
    stream: SessionStream
    after: int


class LostAnswer(NamedTuple):
    """A stream whose process ended before the response."""

    request_id: str | int


class EventStore:
    """The streams of one session by number, with their stored events.

    Event ids contain the process that holds the stream.
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
        """`process` identifies this run of the process. `copies` are for other replicas."""
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
        """Return the number of streams that are open or have stored events."""
        return len(self._streams)

    def open(self, *, answers_request: bool, request_id: RequestId | None = None) -> SessionStream:
        """Open a stream for a request, or for messages that belong to no request."""
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
        """Return the position after an event, or None if nothing follows or later events were dropped."""
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
        """Return the position of another process's event, which may have been copied."""
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
        self._streams[stream.number] = stream  # It was forgotten while a client resumed it.
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
        """Abort a stream's connection, because another process resumes it. Return whether more events will follow."""
        stream = self._streams.get(number)
        if stream is None:
            return False
        stream.abort_connection()
        return not stream.is_over

    def discard_if_done(self, stream: SessionStream) -> None:
        if self._copies is not None and stream.is_over:
            self._copies.end(stream.number, stream.last)
        if not stream.frames and stream.is_at_rest:
            self._streams.pop(stream.number, None)

    def expire(self) -> None:
        oldest = asyncio.get_running_loop().time() - self._room.bounds.age.total_seconds()
        # Iterate over a copy, because streams without events are removed.
        for stream in list(self._streams.values()):
            while stream.frames and stream.frames[0][0] <= oldest:
                self.forget_oldest(stream)

    def close(self) -> None:
        """Forget everything and store no more events."""
        self._is_closed = True
        for stream in list(self._streams.values()):
            while stream.frames:
                self.forget_oldest(stream)
        self._streams.clear()

    def _drop_oldest(self, stream: SessionStream) -> None:
        if not self._has_dropped:
            self._has_dropped = True
            log.warning("events dropped: replay buffer is full", bytes=self._size, events=self._events)
        self.forget_oldest(stream)

    def forget_oldest(self, stream: SessionStream) -> None:
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
    """Encode the request id for event ids. Another process needs it if this one ends before the response."""
    written = orjson.dumps(request_id)
    return b"" if len(written) > _MAX_REQUEST_ID else b"-" + base64.urlsafe_b64encode(written).rstrip(b"=")


def _lost_with_its_process(carried: str | None) -> LostAnswer | None:
    """Decode the request id of another process's stream, or None if the stream belonged to no request."""
    if carried is None:
        return None
    try:
        request_id = orjson.loads(base64.urlsafe_b64decode(carried + "=" * (-len(carried) % 4)))
    # Covers base64 and JSON errors of invalid ids.
    except ValueError:
        return None
    return LostAnswer(request_id) if isinstance(request_id, str | int) else None
