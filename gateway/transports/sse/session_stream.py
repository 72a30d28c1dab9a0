"""One stream of a session, whichever connection carries it at the moment (2025-11-25 basic/transports, "Resumability").

Each event has an id: the stream's number and its own, so that ids are unique in the session and one says what came
before it, and where. Events are kept for a client that lost its connection. One connection carries the stream at a
time: a client that resumes it has lost the one before.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from gateway.transports.sse.event_stream import encode_event

RETRY_MS: Final = 1000
"""When a client whose connection was closed on purpose comes back, unless the tool says otherwise."""

RECONNECT_MS: Final = 3000
"""When a client whose stream has ended comes back. Official clients try twice, so a restart may take twice as long."""


class StreamConnection(Protocol):
    """A connection that carries a stream, or will once there is something to write."""

    @property
    def is_open(self) -> bool:
        """Whether anything has been written."""

    async def write(self, chunk: bytes) -> None:
        """Write whole events.

        Raises:
            ConnectionError: the reader is gone.
        """

    def abort(self) -> None:
        """Drop the connection."""


class StreamStore(Protocol):
    """Keeps the events of streams; an `EventStore`."""

    @property
    def sends_priming_event(self) -> bool:
        """Whether streams begin with an id: since 2025-11-25. Older clients choke on an event without data."""

    def fits(self, frame: bytes) -> bool: ...
    def keep(self, stream: "SessionStream", frame: bytes) -> None: ...
    def discard_if_done(self, stream: "SessionStream") -> None:
        """Forget a stream, if nothing is kept of it and nothing more is said on it."""


class SessionStream:
    """The messages for one request, or those that belong to no request."""

    __slots__ = (
        "_ending",
        "_id_suffix",
        "_lock",
        "_out",
        "_process",
        "_store",
        "_was_primed",
        "answers_request",
        "frames",
        "is_over",
        "last",
        "number",
        "size",
    )

    def __init__(
        self,
        number: int,
        *,
        store: StreamStore,
        answers_request: bool,
        process: str,
        id_suffix: bytes = b"",
    ) -> None:
        """Say nothing yet. The id of an event is the process, this stream's number, its own, and the suffix."""
        self.number: Final = number
        self.answers_request: Final = answers_request
        self.is_over = False
        """Whether the answer was given."""
        self.last = 0
        """The number of its last event."""
        self.frames: deque[tuple[float, bytes]] | None = None
        """The last events, each with its time; made when there is one."""
        self.size = 0
        """Bytes."""
        self._store: Final = store
        self._process: Final = process
        self._id_suffix: Final = id_suffix
        self._out: StreamConnection | None = None
        self._ending: asyncio.Future[bytes | None] | None = None
        self._was_primed = False
        self._lock: Final = asyncio.Lock()

    @property
    def preamble(self) -> bytes:
        """The priming event of the first connection, so that the client can come back before any other event."""
        if not self._store.sends_priming_event:
            return b""
        retry = b"" if self.answers_request else b"retry: %d\n" % RECONNECT_MS
        return b"id: %b\n%bdata: \n\n" % (self._event_id(0), retry)

    @property
    def is_at_rest(self) -> bool:
        """Tell whether nothing more is sent on it, unless a client resumes it."""
        return self.is_over if self.answers_request else self._out is None

    def after(self, number: int) -> list[bytes]:
        """The events that came after that one and are still here."""
        frames = self.frames or ()
        first = self.last - len(frames) + 1
        return [frame for at, (_, frame) in enumerate(frames, first) if at > number]

    def keep(self, frame: bytes) -> None:
        if self.frames is None:
            self.frames = deque()
        self.frames.append((asyncio.get_running_loop().time(), frame))
        self.size += len(frame)

    def forget_oldest(self) -> int:
        """Forget the oldest event; returns its size."""
        _, frame = (self.frames or deque()).popleft()
        self.size -= len(frame)
        return len(frame)

    def connect(self, out: StreamConnection | None, *, ending: asyncio.Future[bytes | None]) -> None:
        """Let a connection carry the stream; without `out` it carries no events.

        `ending` is what the connection is to end with, once it is to end: the last event, or nothing more.
        """
        self._out, self._ending = out, ending

    async def resume(self, out: StreamConnection, *, after: int) -> asyncio.Future[bytes | None]:
        """Write what came after that event, then go on live; returns what the connection ends with, see `connect`.

        Raises:
            ConnectionError: the reader is gone again.
        """
        # Before the lock, which a write to the lost connection may hold until it times out.
        self.abort_connection()
        async with self._lock:
            self.abort_connection()  # of another that came while this one waited
            written = after
            while written < self.last:  # meanwhile the answer may come
                missed, written = self.after(written), self.last
                for frame in missed:
                    await out.write(frame)
            # Still under the lock: no event can come between those that were missed and those that follow.
            ending: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
            self.connect(out, ending=ending)
            if self.is_over:
                ending.set_result(None)
            return ending

    def abort_connection(self) -> None:
        """Abort the connection, if there is one: its client resumes the stream on another."""
        if self._out is not None:
            self._out.abort()
            self._disconnect(None)

    def disconnect(self, out: StreamConnection) -> None:
        """Note that the connection carries the stream no more."""
        if self._out is out:
            self._disconnect(None)
        self._store.discard_if_done(self)

    async def send_event(self, data: bytes) -> bool:
        """Write an event to the connection, if there is one, and keep it for a client that resumes.

        Returns:
            False if the last event was sent, or there is no connection and no client that can resume.

        Raises:
            ConnectionError: the reader has just gone. The event is kept.
        """
        async with self._lock:
            if self.is_over or not self._has_reader:
                return False
            frame = self._framed(data)
            # First kept, then written: a reader that goes in between finds it when it comes back.
            self._store.keep(self, frame)
            if self._out is not None:
                await self._out.write(frame)
            return True

    def end(self, data: bytes | None, *, stand_in: Callable[[], bytes]) -> None:
        """Say the last, if there is anything to say, and let the connection end.

        An answer that is too large to be kept is kept as another one: the client shall not wait for nothing.
        """
        # Without the lock, which a slow reader may hold: the connection's handler writes the last event.
        self.is_over = True
        frame = None
        if data is not None and self._has_reader:
            frame = self._framed(data)
            self._store.keep(self, frame if self._store.fits(frame) else self._framed(stand_in(), number=self.last))
        self._disconnect(frame)
        self._store.discard_if_done(self)

    async def close_for_polling(self, retry_ms: int | None) -> None:
        """Close the connection and let the client come back; events wait for it. Since 2025-11-25."""
        async with self._lock:
            # 2025-11-25 "Sending Messages to the Server", 6: only who was sent an event id can come back.
            if self._out is not None and self._store.sends_priming_event:
                with suppress(ConnectionError):
                    await self._out.write(b"retry: %d\n\n" % (RETRY_MS if retry_ms is None else retry_ms))
                self._disconnect(None)

    @property
    def _has_reader(self) -> bool:
        return self._out is not None or self._was_primed or self.last > 0

    def _framed(self, data: bytes, *, number: int | None = None) -> bytes:
        if number is None:
            self.last = number = self.last + 1
        return encode_event(data, event_id=self._event_id(number))

    def _event_id(self, number: int) -> bytes:
        return b"%b-%x-%d%b" % (self._process.encode(), self.number, number, self._id_suffix)

    def _disconnect(self, last: bytes | None) -> None:
        """Let the connection end; its handler writes what is left."""
        if self._out is not None and self._out.is_open and self._store.sends_priming_event:
            self._was_primed = True
        self._out = None
        if self._ending is not None and not self._ending.done():
            self._ending.set_result(last)
        self._ending = None
