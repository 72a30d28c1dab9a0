"""Writes server-sent events (WHATWG HTML §9.2) as one HTTP response.

Nothing is written before the first event. Slow readers lose their connection after a timeout. Comments keep idle
streams alive, because proxies close silent connections.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import Final, NoReturn

import structlog
from aiohttp import web

from gateway.transports.http.request_limits import StreamTimeouts
from gateway.transports.write_quota import EXEMPT_BYTES
from gateway.wire.accept import EVENT_STREAM

log: Final = structlog.get_logger(__name__)

MESSAGE: Final = "message"
"""The type of events with JSON-RPC messages. HTTP+SSE also uses `endpoint`."""

PART_BYTES: Final = 256 * 1024
"""Large events and responses are written in parts of this size."""
_COMMENT: Final = b":\n\n"
_HEADERS: Final = {
    "Content-Type": EVENT_STREAM,
    "Cache-Control": "no-cache, no-transform",  # Also disables compression, which would delay events.
    "X-Accel-Buffering": "no",  # nginx would buffer events.
}


class EventStream:
    """A response that can become a stream. An event is one write unless it is large."""

    __slots__ = (
        "_beating",
        "_caller",
        "_exempt",
        "_headers",
        "_is_closed",
        "_lock",
        "_pace",
        "_pending",
        "_preamble",
        "_request",
        "_response",
        "_timer",
        "_until_close",
        "_waiting",
    )

    def __init__(  # noqa: PLR0913 - the facts of a response
        self,
        request: web.Request,
        *,
        pace: StreamTimeouts,
        headers: Mapping[str, str],
        preamble: bytes = b"",
        caller: str = "",
        until_close: bool = False,
    ) -> None:
        """Create the stream.

        Args:
            request: The request.
            pace: Timeouts and the quota of unread bytes.
            headers: Headers of the response.
            preamble: The start of the stream.
            caller: The caller.
            until_close: End the body by closing the connection. See `_UnframedResponse`.
        """
        self._request = request
        self._pace = pace
        self._caller = caller
        self._until_close = until_close
        self._headers = headers
        self._preamble = preamble
        self._response: web.StreamResponse | None = None
        self._exempt = 0  # Queued bytes that are exempt from the quota.
        self._is_closed = False
        self._lock = asyncio.Lock()
        self._pending = 0
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None
        self._beating: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Return whether the status and media type can no longer change."""
        return self._response is not None or self._pending > 0

    def open_soon(self) -> None:
        """Open the stream with a comment soon, unless an event or `close` comes first."""
        self._beat()

    async def open(self) -> None:
        """Open the stream, so that the client sees that it is connected."""
        await self.write(b"" if self._preamble else _COMMENT)

    async def send(self, data: bytes, *, event: str = MESSAGE) -> None:
        """Write an event. `data` must be one line.

        Raises:
            ConnectionError: The reader disconnected or was too slow.
        """
        await self.write(encode_event(data, kind=event))

    async def write(self, chunk: bytes) -> None:
        """Write encoded events.

        Raises:
            ConnectionError: As in `send`.
        """
        await self._write(chunk)

    async def close(self, last: bytes | None = None) -> web.StreamResponse:
        """End the stream, with an optional last event.

        Raises:
            ConnectionError: As in `send`.
        """
        self.stop()
        return await self._write(last or b"", is_end=True)

    def stop(self) -> None:
        """Stop the keep-alive: the reader disconnected, or the response is not a stream."""
        if self._timer is not None:
            self._timer.cancel()
        if self._beating is not None:
            self._beating.cancel()
        self._timer = self._beating = None

    def abort(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()

    async def _write(self, chunk: bytes, *, is_end: bool = False) -> web.StreamResponse:
        # All writes of a stream share one exemption, because HTTP+SSE writes the responses of many calls to one stream.
        counted = len(chunk) if self._exempt + len(chunk) > EXEMPT_BYTES else 0
        exempt = len(chunk) - counted
        self._exempt += exempt
        self._pending += 1
        try:
            await self._take_room(counted)  # Before the lock, whose queue would be unbounded.
            try:
                async with self._lock:
                    if self._is_closed:
                        raise ConnectionResetError("the stream has ended")
                    # Set before the write, so that nothing follows the last chunk even if the write fails.
                    self._is_closed = is_end
                    preamble = b"" if self._response is not None else self._preamble
                    response = await self._opened()
                    writing = write_in_parts(response, preamble + chunk, is_end=is_end)
                    await write_within(self._pace.write_timeout, self._request, writing)
                    return response
            finally:
                self._pace.quota.release_bytes(self._caller, counted)
        finally:
            self._exempt -= exempt
            self._pending -= 1

    async def _opened(self) -> web.StreamResponse:
        if self._response is None:
            kind = _UnframedResponse if self._until_close else web.StreamResponse
            response = kind(headers={**_HEADERS, **self._headers})
            await response.prepare(self._request)
            self._response = response
            if self._timer is None:
                self._beat_in(self._pace.keepalive)
        return self._response

    async def _take_room(self, size: int) -> None:
        """Reserve room for a write. Exempt writes only wait for earlier writes of this stream."""
        quota = self._pace.quota
        if not size and not self._waiting:
            return
        if quota.take(self._caller, size):
            return
        self._waiting += 1
        try:
            has_room = await quota.wait(self._caller, size, seconds=self._pace.write_timeout)
        finally:
            self._waiting -= 1
        if not has_room:
            abort_slow_reader(self._request)

    def _beat_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._beat)

    def _beat(self) -> None:
        self._beating = asyncio.get_running_loop().create_task(self._show_life(), name="event stream keep-alive")

    async def _show_life(self) -> None:
        with suppress(ConnectionError):
            if not self._pending:  # Otherwise an event is being written.
                await self.write(_COMMENT)
            self._beat_in(self._pace.keepalive)
        self._beating = None  # Free the finished task.


class _UnframedResponse(web.StreamResponse):
    """A response whose body ends with its connection (RFC 9112 §6.3, 8).

    Official Python clients treat a missing last chunk as a failure, and give up after the second. A killed process
    writes no last chunk, but its connections are closed.
    """

    _length_check = False  # Otherwise aiohttp uses chunks.

    def __init__(self, *, headers: Mapping[str, str]) -> None:
        super().__init__(headers=headers)
        self.force_close()


async def write_within(seconds: float, request: web.Request, writing: Awaitable[None]) -> None:
    """Wait for a write. Abort the connection if it takes too long.

    Raises:
        ConnectionError: The reader disconnected or was too slow.
    """
    try:
        async with asyncio.timeout(seconds):
            await writing
    except TimeoutError:
        abort_slow_reader(request)


def abort_slow_reader(request: web.Request) -> NoReturn:
    """Abort the connection of a slow reader.

    Raises:
        ConnectionError: Always.
    """
    log.warning("slow reader dropped", peer=request.remote, path=request.path)
    if request.transport is not None:
        request.transport.abort()
    raise ConnectionResetError("the client reads too slowly") from None


async def write_in_parts(response: web.StreamResponse, data: bytes, *, is_end: bool = False) -> None:
    """Write large data in parts. Otherwise the transport would copy and hold the whole data."""
    rest = data
    if len(data) > PART_BYTES:
        whole = memoryview(data)
        for start in range(0, len(data), PART_BYTES):
            await response.write(whole[start : start + PART_BYTES])
        rest = b""
    if is_end:
        await response.write_eof(rest)
    elif rest:
        await response.write(rest)


def encode_event(data: bytes, *, kind: str = MESSAGE, event_id: bytes | None = None) -> bytes:
    """Encode an event. `data` must be one line."""
    # JSON contains no line breaks, so one `data` line is enough.
    id_field = b"" if event_id is None else b"id: %b\n" % event_id
    return b"%bevent: %b\ndata: %b\n\n" % (id_field, kind.encode(), data)
