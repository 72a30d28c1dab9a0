"""The streams of a session, and their stored events for clients that resume (`Last-Event-ID`).

MCP 2025-11-25 basic/transports, "Resumability and Redelivery": event ids must be unique in the session, so an event id
contains the numbers of the stream and the event. A stream has at most one connection. A client that resumes the stream
replaces the connection.

A session that exceeds its limit drops its oldest events, starting with finished streams. If all sessions together
exceed the total limit, the oldest streams lose their events first.
"""

import asyncio
import base64
import re
import secrets
from collections import deque
from contextlib import suppress
from datetime import timedelta
from typing import Final, NamedTuple

import msgspec
import orjson
import structlog
from msgspec.structs import replace

from gateway.errors import ErrorCode, RpcError
from gateway.json_types import JsonObject
from gateway.protocol import results
from gateway.protocol.exchange import Caller, Reply
from gateway.transports.errors import HttpError
from gateway.transports.sse.event_copies import EventCopies, RemotePlace
from gateway.transports.sse.response_channel import ResponseChannel, encode_event
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Batch, Request, RequestId

log: Final = structlog.get_logger(__name__)

RETRY_MS: Final = 1000
"""The default reconnection delay after `close_stream`, in milliseconds."""
RECONNECT_MS: Final = 3000
"""The delay in milliseconds before a client reopens a GET stream that ended. It is long, as clients try only twice."""
_EVENT_ID: Final = re.compile(r"([0-9a-z]{1,32})-([0-9a-f]{1,16})-([0-9]{1,12})(?:-([A-Za-z0-9_-]{1,172}))?")
"""An event id contains the process, the numbers of stream and event, and the encoded id of the stream's request."""
_MAX_REQUEST_ID: Final = 128
"""The maximum size of a request id in an event id, in bytes."""
_FIRST_NUMBER_BITS: Final = 40
"""The size of a session's first stream number, which is random so that event ids of other sessions are rejected."""
_FOREIGN: Final = HttpError(status=400, message="Last-Event-ID is not the id of an event of this session")
_TOO_LARGE: Final = RpcError(
    ErrorCode.INTERNAL_ERROR, "The connection was lost, and the response was too large to keep"
)


class SessionStream:
    """Sends the events of one request, or (without `message`) the events of a session that belong to no request.

    The stream of a request outlives the request's connection, because a disconnect is not a cancellation (2025-11-25
    basic/transports, "Sending Messages to the Server", 6).
    """

    def __init__(self, store: "EventStore", caller: Caller, message: Request | Batch | None = None) -> None:
        self.caller = caller if message is not None else _without_request(caller)
        self.answers_request: Final = message is not None
        self.is_over = False
        self.last = 0
        self.frames: deque[tuple[float, bytes]] | None = None
        """The stored events with their times, or None before the first event."""
        self.size = 0
        """The size of the stored events in bytes."""
        # A stored stream must not keep the message alive, which can be large.
        self._request_id: Final = message.id if isinstance(message, Request) else None
        self._number: int | None = None
        self._store: Final = store
        self._out: ResponseChannel | None = None
        self._ending: asyncio.Future[bytes | None] | None = None
        self._was_primed = False
        self._lock: Final = asyncio.Lock()

    @property
    def number(self) -> int:
        """The stream's number in event ids, assigned on first use because most streams do not need a number."""
        if self._number is None:
            self._number = self._store.add(self)
        return self._number

    def preamble(self) -> bytes:
        """Return the priming event, whose id allows the client to resume before any other event arrives."""
        if not self._store.sends_priming_event:
            return b""
        retry = b"" if self.answers_request else b"retry: %d\n" % RECONNECT_MS
        return b"id: %b\n%bdata: \n\n" % (self._event_id(0), retry)

    @property
    def is_at_rest(self) -> bool:
        """Whether the stream sends no more events unless a client resumes it."""
        return self.is_over if self.answers_request else self._out is None

    def after(self, number: int) -> list[bytes]:
        frames = self.frames or ()
        first = self.last - len(frames) + 1
        return [frame for at, (_, frame) in enumerate(frames, first) if at > number]

    def keep(self, frame: bytes) -> None:
        if self.frames is None:
            self.frames = deque()
        self.frames.append((self._store.loop.time(), frame))
        self.size += len(frame)

    def forget_oldest(self) -> None:
        _, frame = (self.frames or deque()).popleft()
        self.size -= len(frame)
        self._store.note_forgotten(self, len(frame))

    def connect(self, out: ResponseChannel) -> asyncio.Future[bytes | None]:
        """Attach a connection. When it must close, the returned future receives the last event to write, or None."""
        self._out = out
        self._ending = ending = self._store.loop.create_future()
        return ending

    async def resume(self, out: ResponseChannel, *, after: int) -> asyncio.Future[bytes | None]:
        """Write the stored events after number `after`, then attach the connection as `connect` does.

        Raises:
            ConnectionError: The reader disconnected again.
        """
        # Abort before taking the lock, because a write to the lost connection can hold the lock until it times out.
        self.abort_connection()
        async with self._lock:
            self.abort_connection()  # Another connection can have attached while this one waited.
            written = after
            while written < self.last:  # More events can arrive during a write.
                missed, written = self.after(written), self.last
                for frame in missed:
                    await out.write(frame)
            # Connect under the lock, so that no event is missed.
            ending = self.connect(out)
            if self.is_over:
                ending.set_result(None)
            return ending

    def abort_connection(self) -> None:
        """Abort the current connection, because the client resumes the stream on another one."""
        if self._out is not None:
            self._out.abort()
            self._disconnect(None)

    def disconnect(self, out: ResponseChannel) -> None:
        if self._out is out:
            self._disconnect(None)
        if self._number is not None:
            self._store.discard_if_done(self)

    async def send(self, notification: JsonObject) -> bool:
        await asyncio.sleep(0)  # Let other tasks run even if a tool sends progress in a tight loop.
        # Ignore a disconnect, because the event is already stored for a client that resumes.
        with suppress(ConnectionError):
            return await self.send_event(jsonrpc.encode(notification))
        return True

    async def send_event(self, data: bytes) -> bool:
        """Write an event to the connection, and store it for clients that resume.

        Returns:
            False if the stream is over, or if there is no connection and the client cannot resume.

        Raises:
            ConnectionError: The reader has just disconnected. The event is stored.
        """
        async with self._lock:
            if self.is_over or not self._has_reader:
                return False
            frame = self._framed(data)
            # Store the event before writing, in case the client disconnects during the write.
            self._store.keep(self, frame)
            if self._out is not None:
                await self._out.write(frame)
            return True

    def finish(self, reply: Reply) -> None:
        """Send the response to the connection, or store it for a client that resumes.

        An error replaces a response that is too large to store, so that the client does not wait forever.
        """
        # Do not take the lock, which a slow reader can hold. The connection's handler writes the last event.
        self.is_over = True
        is_event = self._out is None or self._out.choose_format(reply)
        frame = None
        if is_event and reply.body is not None and self._has_reader:
            frame = self._framed(reply.body)
            self._store.keep(self, frame if self._store.fits(frame) else self._framed(self._lost(), number=self.last))
        self._disconnect(frame)
        if self._number is not None:
            self.caller = _without_request(self.caller)
            self._store.end(self)

    async def close_stream(self, retry_ms: int | None) -> None:
        """Close the connection, so that the client reconnects after a delay (since 2025-11-25)."""
        async with self._lock:
            # 2025-11-25 "Sending Messages to the Server", 6: only clients with an event id can resume.
            if self._out is not None and self._out.takes_events and self._store.sends_priming_event:
                with suppress(ConnectionError):
                    await self._out.write(b"retry: %d\n\n" % (RETRY_MS if retry_ms is None else retry_ms))
                self._disconnect(None)

    @property
    def _has_reader(self) -> bool:
        return (self._out is not None and self._out.takes_events) or self._was_primed or self.last > 0

    def _framed(self, data: bytes, *, number: int | None = None) -> bytes:
        if number is None:
            self.last = number = self.last + 1
        return encode_event(data, event_id=self._event_id(number))

    def _event_id(self, number: int) -> bytes:
        suffix = b"" if self._request_id is None else _encoded_id(self._request_id)
        return b"%b-%x-%d%b" % (self._store.process.encode(), self.number, number, suffix)

    def _lost(self) -> bytes:
        return results.error_reply(_TOO_LARGE, request_id=self._request_id, revision=None).body or b""

    def _disconnect(self, last: bytes | None) -> None:
        """Detach the connection, and pass the last event to the connection's handler."""
        if self._out is not None and self._out.is_open and self._store.sends_priming_event:
            self._was_primed = True
        self._out = None
        if self._ending is not None and not self._ending.done():
            self._ending.set_result(last)
        self._ending = None


def _without_request(caller: Caller) -> Caller:
    """Return the caller without the request's headers and access token, which must not be stored."""
    return replace(caller, headers={}, access_token=None)


class ReplayBounds(msgspec.Struct, frozen=True, kw_only=True):
    stream_events: int = 1000
    stream_bytes: int = 4 * 2**20
    session_events: int = 2000
    session_bytes: int = 8 * 2**20
    total_bytes: int = 64 * 2**20
    age: timedelta = timedelta(minutes=10)


class ReplayQuota:
    """Limits the total size of the stored events of all sessions."""

    def __init__(self, bounds: ReplayBounds) -> None:
        self.bounds: Final = bounds
        self.used = 0
        """The size of all stored events in bytes."""
        self.streams: Final[dict[SessionStream, None]] = {}
        """The streams with stored events, in the order of their last events."""
        self._has_dropped = False

    def add(self, size: int) -> None:
        self.used += size

    def evict(self) -> None:
        """Drop events until an eighth of the total is free, starting with the stream whose last event is oldest."""
        if not self._has_dropped:  # Warn only once, because later events exceed the limit too.
            self._has_dropped = True
            log.warning("events dropped: the replay buffers exceed their total size limit", bytes=self.used)
        for stream in list(self.streams):
            while stream.frames and self.used > self.bounds.total_bytes * 7 // 8:
                stream.forget_oldest()


class Cursor(NamedTuple):
    stream: SessionStream
    after: int


class EventStore:
    """The streams of one session by number, with their stored events.

    Event ids contain the name of the process that holds the stream.
    """

    def __init__(
        self,
        quota: ReplayQuota,
        *,
        sends_priming_event: bool,
        process: str = "p",
        nonce: str = "",
        copies: EventCopies | None = None,
    ) -> None:
        """Create the event store of one session.

        Args:
            quota: The quota that all sessions share.
            sends_priming_event: Whether to send priming events, as in revision 2025-11-25 and later. Clients of older
                revisions fail on events without data.
            process: Identifies this run of the process.
            nonce: Identifies the session.
            copies: Copies the events for other replicas.
        """
        self.loop: Final = asyncio.get_running_loop()
        self._copies: Final = copies
        self._nonce: Final = nonce
        self.process: Final = process
        self.sends_priming_event: Final = sends_priming_event
        self._quota: Final = quota
        self._first: Final = secrets.randbits(_FIRST_NUMBER_BITS)
        self._next = self._first
        self._streams: Final[dict[int, SessionStream]] = {}
        self._events = 0
        self._size = 0
        self._has_dropped = False
        self._is_closed = False

    def __len__(self) -> int:
        """Return the number of stored streams. A stream is stored when it sends its first event."""
        return len(self._streams)

    def add(self, stream: SessionStream) -> int:
        number = self._next
        self._next += 1
        self._streams[number] = stream
        return number

    def find(self, event_id: str) -> Cursor | RemotePlace | HttpError | None:
        """Return the position after an event, None if no events remain, or an error for an id of another session."""
        match = _EVENT_ID.fullmatch(event_id)
        if match is not None and match[1] != self.process:
            return RemotePlace(match[1], int(match[2], 16), int(match[3]), _request_id_of(match[4]))
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

    def fits(self, frame: bytes) -> bool:
        return len(frame) <= self._quota.bounds.stream_bytes

    def keep(self, stream: SessionStream, frame: bytes) -> None:
        if self._is_closed:
            return
        if self._copies is not None:
            self._copies.write(self._nonce, stream.number, stream.last, frame)
        self._quota.streams.pop(stream, None)  # moves the stream to the end
        self._quota.streams[stream] = None
        self._streams[stream.number] = stream  # The stream can have been discarded while a client resumed it.
        stream.keep(frame)
        self._count(len(frame), events=1)
        bounds = self._quota.bounds
        while stream.size > bounds.stream_bytes or len(stream.frames or ()) > bounds.stream_events:
            self._drop_oldest(stream)
        while stream.frames and (self._size > bounds.session_bytes or self._events > bounds.session_events):
            others = (other for other in self._streams.values() if other.is_at_rest and other is not stream)
            self._drop_oldest(next(others, stream))
        if self._quota.used > bounds.total_bytes:
            self._quota.evict()

    def abort_connection(self, number: int) -> bool:
        """Abort a stream's connection, because another process resumes it. Return whether more events will follow."""
        stream = self._streams.get(number)
        if stream is None:
            return False
        stream.abort_connection()
        return not stream.is_over

    def end(self, stream: SessionStream) -> None:
        """Record that a stream has sent its last event."""
        if self._copies is not None and stream.last and not self._is_closed:
            self._copies.end(self._nonce, stream.number, stream.last)
        self.discard_if_done(stream)

    def discard_if_done(self, stream: SessionStream) -> None:
        if not stream.frames and stream.is_at_rest:
            self._streams.pop(stream.number, None)

    def expire(self) -> None:
        oldest = self.loop.time() - self._quota.bounds.age.total_seconds()
        # Iterate over a copy, because streams without events are removed.
        for stream in list(self._streams.values()):
            while stream.frames and stream.frames[0][0] <= oldest:
                stream.forget_oldest()

    def close(self) -> None:
        """Discard all streams and events, and store no further events."""
        self._is_closed = True
        for stream in list(self._streams.values()):
            while stream.frames:
                stream.forget_oldest()
        self._streams.clear()

    def note_forgotten(self, stream: SessionStream, size: int) -> None:
        if not stream.frames:
            del self._quota.streams[stream]
        self._count(-size, events=-1)
        self.discard_if_done(stream)

    def _drop_oldest(self, stream: SessionStream) -> None:
        if not self._has_dropped:
            self._has_dropped = True
            log.warning("events dropped: replay buffer is full", bytes=self._size, events=self._events)
        stream.forget_oldest()

    def _count(self, size: int, *, events: int) -> None:
        self._size += size
        self._events += events
        self._quota.add(size)


def _encoded_id(request_id: RequestId) -> bytes:
    """Encode a request id for an event id. Another process needs the id to report that this process has ended."""
    written = orjson.dumps(request_id)
    return b"" if len(written) > _MAX_REQUEST_ID else b"-" + base64.urlsafe_b64encode(written).rstrip(b"=")


def _request_id_of(carried: str | None) -> str | int | None:
    """Decode the request id in an event id. Return None if the request id is missing or invalid."""
    if carried is None:
        return None
    try:
        request_id = orjson.loads(base64.urlsafe_b64decode(carried + "=" * (-len(carried) % 4)))
    # Invalid ids raise base64 or JSON errors, which are `ValueError`s.
    except ValueError:
        return None
    return request_id if isinstance(request_id, str | int) else None
