"""One stream of a session, independent of its connection (2025-11-25 basic/transports, "Resumability").

Event ids contain the numbers of the stream and the event, so they are unique in the session. Events are stored for
clients that lose their connection. A stream has at most one connection. Resuming the stream replaces that connection.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from gateway.transports.sse.event_stream import encode_event

RETRY_MS: Final = 1000
"""The default reconnection delay after a deliberate close, in milliseconds."""

RECONNECT_MS: Final = 3000
"""The reconnection delay after the end of a stream. Official clients retry twice, so a restart can take twice as long.
"""


class StreamConnection(Protocol):
    """A connection that carries a stream, or will once there is an event."""

    @property
    def is_open(self) -> bool: ...

    async def write(self, chunk: bytes) -> None:
        """Write encoded events.

        Raises:
            ConnectionError: The reader disconnected.
        """

    def abort(self) -> None: ...


class StreamStore(Protocol):
    @property
    def sends_priming_event(self) -> bool:
        """Return whether streams start with a priming event (since 2025-11-25).

        Older clients fail on events without data.
        """

    def fits(self, frame: bytes) -> bool: ...
    def keep(self, stream: "SessionStream", frame: bytes) -> None: ...
    def discard_if_done(self, stream: "SessionStream") -> None:
        """Forget a stream that is done and has no stored events."""


class SessionStream:
    """A stream of the messages for one request, or of those not related to any request (`answers_request` is False)."""

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
        """Event ids consist of the process, the stream's number, the event's number and the suffix."""
        self.number: Final = number
        self.answers_request: Final = answers_request
        self.is_over = False
        """Whether the response was sent."""
        self.last = 0
        self.frames: deque[tuple[float, bytes]] | None = None
        """The kept events with their times; None before the first."""
        self.size = 0
        """The size of the kept events in bytes."""
        self._store: Final = store
        self._process: Final = process
        self._id_suffix: Final = id_suffix
        self._out: StreamConnection | None = None
        self._ending: asyncio.Future[bytes | None] | None = None
        self._was_primed = False
        self._lock: Final = asyncio.Lock()

    @property
    def preamble(self) -> bytes:
        """The priming event. It allows the client to resume before any other event."""
        if not self._store.sends_priming_event:
            return b""
        retry = b"" if self.answers_request else b"retry: %d\n" % RECONNECT_MS
        return b"id: %b\n%bdata: \n\n" % (self._event_id(0), retry)

    @property
    def is_at_rest(self) -> bool:
        """Return whether no more events will follow unless a client resumes the stream."""
        return self.is_over if self.answers_request else self._out is None

    def after(self, number: int) -> list[bytes]:
        """Return the stored events after this one."""
        frames = self.frames or ()
        first = self.last - len(frames) + 1
        return [frame for at, (_, frame) in enumerate(frames, first) if at > number]

    def keep(self, frame: bytes) -> None:
        if self.frames is None:
            self.frames = deque()
        self.frames.append((asyncio.get_running_loop().time(), frame))
        self.size += len(frame)

    def forget_oldest(self) -> int:
        """Forget the oldest event and return its size."""
        _, frame = (self.frames or deque()).popleft()
        self.size -= len(frame)
        return len(frame)

    def connect(self, out: StreamConnection | None, *, ending: asyncio.Future[bytes | None]) -> None:
        """Attach a connection. Without `out`, the caller only receives the end.

        `ending` receives the last event, or None, when the connection must end.
        """
        self._out, self._ending = out, ending

    async def resume(self, out: StreamConnection, *, after: int) -> asyncio.Future[bytes | None]:
        """Write the events after this one, then attach the connection. Return its `ending`. See `connect`.

        Raises:
            ConnectionError: The reader disconnected again.
        """
        # Before the lock, which a write to the lost connection can hold until it times out.
        self.abort_connection()
        async with self._lock:
            self.abort_connection()  # Another connection came first.
            written = after
            while written < self.last:  # Writing can take long enough for new events.
                missed, written = self.after(written), self.last
                for frame in missed:
                    await out.write(frame)
            # Under the lock, so that no event is missed in between.
            ending: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
            self.connect(out, ending=ending)
            if self.is_over:
                ending.set_result(None)
            return ending

    def abort_connection(self) -> None:
        """Abort the current connection, because the client resumes the stream on another one."""
        if self._out is not None:
            self._out.abort()
            self._disconnect(None)

    def disconnect(self, out: StreamConnection) -> None:
        if self._out is out:
            self._disconnect(None)
        self._store.discard_if_done(self)

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
            # Store it before writing, in case the reader disconnects in between.
            self._store.keep(self, frame)
            if self._out is not None:
                await self._out.write(frame)
            return True

    def end(self, data: bytes | None, *, stand_in: Callable[[], bytes]) -> None:
        """Finish the stream with an optional last event.

        A response that is too large to store is replaced by an error, so that the client does not wait forever.
        """
        # Without the lock, which a slow reader can hold. The connection's handler writes the last event.
        self.is_over = True
        frame = None
        if data is not None and self._has_reader:
            frame = self._framed(data)
            self._store.keep(self, frame if self._store.fits(frame) else self._framed(stand_in(), number=self.last))
        self._disconnect(frame)
        self._store.discard_if_done(self)

    async def close_for_polling(self, retry_ms: int | None) -> None:
        """Close the connection and let the client poll (since 2025-11-25)."""
        async with self._lock:
            # 2025-11-25 "Sending Messages to the Server", 6: only clients with an event id can resume.
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
        """Detach the connection. Its handler writes the last event."""
        if self._out is not None and self._out.is_open and self._store.sends_priming_event:
            self._was_primed = True
        self._out = None
        if self._ending is not None and not self._ending.done():
            self._ending.set_result(last)
        self._ending = None
