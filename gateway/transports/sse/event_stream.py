"""Writes server-sent events (WHATWG HTML §9.2) on one HTTP response.

Nothing is written before the first event, and nothing is buffered without end: a reader that does not take what it was
sent within a bounded time loses its connection. While a stream is open it is never silent for long, because proxies
cut what looks dead; a comment, which clients skip, is enough.
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

log: Final = structlog.get_logger()

MESSAGE: Final = "message"
"""The type of events that are JSON-RPC messages; the only other one is HTTP+SSE's `endpoint`."""

PART_BYTES: Final = 256 * 1024
"""Of an event or answer that is larger."""
_COMMENT: Final = b":\n\n"
_HEADERS: Final = {
    "Content-Type": EVENT_STREAM,
    "Cache-Control": "no-cache, no-transform",  # nor may a proxy compress it, and hold it back for that
    "X-Accel-Buffering": "no",  # nginx would hold events back until its buffer is full
}


class EventStream:
    """One response that may become a stream. Each event is one write, unless it is large."""

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
        """Do nothing yet.

        Args:
            request: what the stream answers.
            pace: how long writes may take, and silence may last.
            headers: of the response.
            preamble: what the stream begins with, whenever it opens.
            caller: who reads it.
            until_close: it ends with its connection, and not with a last chunk: see `_UnframedResponse`.
        """
        self._request = request
        self._pace = pace
        self._caller = caller
        self._until_close = until_close
        self._headers = headers
        self._preamble = preamble
        self._response: web.StreamResponse | None = None
        self._exempt = 0  # bytes that wait to be written and are not counted
        self._is_closed = False
        self._lock = asyncio.Lock()
        self._pending = 0
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None
        self._beating: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether anything is or will be written, so that status and media type can no longer be chosen."""
        return self._response is not None or self._pending > 0

    def open_soon(self) -> None:
        """Open the stream with a comment, unless an event or `close` comes first."""
        self._beat()

    async def open(self) -> None:
        """Open it now, so that the client hears that it is connected."""
        await self.write(b"" if self._preamble else _COMMENT)

    async def send(self, data: bytes, *, event: str = MESSAGE) -> None:
        """Write one event of a type; `data` is one line.

        Raises:
            ConnectionError: the reader is gone, or was cut off because it does not read.
        """
        await self.write(encode_event(data, kind=event))

    async def write(self, chunk: bytes) -> None:
        """Write what is an event already, or several.

        Raises:
            ConnectionError: as `send`.
        """
        await self._write(chunk)

    async def close(self, last: bytes | None = None) -> web.StreamResponse:
        """End the stream, with a last event if there is one.

        Raises:
            ConnectionError: as `send`.
        """
        self.stop()
        return await self._write(last or b"", is_end=True)

    def stop(self) -> None:
        """Stop writing: the reader is gone, or the answer goes another way."""
        if self._timer is not None:
            self._timer.cancel()
        if self._beating is not None:
            self._beating.cancel()
        self._timer = self._beating = None

    def abort(self) -> None:
        """Abort the connection, whatever is being written on it."""
        if self._request.transport is not None:
            self._request.transport.abort()

    async def _write(self, chunk: bytes, *, is_end: bool = False) -> web.StreamResponse:
        """Write a chunk after all that were to be written before it."""
        # All that waits on one stream shares one exemption: HTTP+SSE writes the answers of many calls on one.
        counted = len(chunk) if self._exempt + len(chunk) > EXEMPT_BYTES else 0
        exempt = len(chunk) - counted
        self._exempt += exempt
        self._pending += 1
        try:
            await self._take_room(counted)  # before it queues up for the lock, or what queues there would be unbounded
            try:
                async with self._lock:
                    if self._is_closed:
                        raise ConnectionResetError("the stream has ended")
                    # Set before the write, so that nothing follows the last chunk, even if that fails.
                    self._is_closed = is_end
                    preamble = b"" if self._response is not None else self._preamble
                    response = await self._opened()
                    writing = write_in_parts(response, preamble + chunk, is_end=is_end)
                    await write_within(self._pace.write_timeout, self._request, writing)
                    return response
            finally:
                self._pace.quota.give_back(self._caller, counted)
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
        """Take room for a write. One that needs none waits if earlier writes of this stream do, and for these alone."""
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
            if not self._pending:  # else something better is on its way
                await self.write(_COMMENT)
            self._beat_in(self._pace.keepalive)
        self._beating = None  # a task that has ended would hold half a kibibyte until the next comment


class _UnframedResponse(web.StreamResponse):
    """A response whose body ends with its connection (RFC 9112 §6.3, 8).

    Why: official Python clients count an end without a last chunk as a failure, and give up a stream after the second.
    A process that is killed writes no last chunk; but its connections are closed, which is the right end of this body.
    """

    _length_check = False  # aiohttp would send chunks where no length is known

    def __init__(self, *, headers: Mapping[str, str]) -> None:
        super().__init__(headers=headers)
        self.force_close()


async def write_within(seconds: float, request: web.Request, writing: Awaitable[None]) -> None:
    """Wait for a write, and abort the connection of a reader that makes no room for it.

    Raises:
        ConnectionError: the reader is gone, or was cut off.
    """
    try:
        async with asyncio.timeout(seconds):
            await writing
    except TimeoutError:
        abort_slow_reader(request)


def abort_slow_reader(request: web.Request) -> NoReturn:
    """Abort the connection of a reader that does not read.

    Raises:
        ConnectionError: always.
    """
    log.warning("slow reader dropped", peer=request.remote, path=request.path)
    if request.transport is not None:
        request.transport.abort()
    raise ConnectionResetError("the reader does not read") from None


async def write_in_parts(response: web.StreamResponse, data: bytes, *, is_end: bool = False) -> None:
    """Hand over no more than the connection takes: it would copy the whole, and hold the copy for its reader."""
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
    """An event; `data` is one line."""
    # JSON holds no line break, so one `data` field is enough.
    id_field = b"" if event_id is None else b"id: %b\n" % event_id
    return b"%bevent: %b\ndata: %b\n\n" % (id_field, kind.encode(), data)
