"""Write server-sent events (WHATWG HTML §9.2) on one HTTP response.

Nothing is written before the first event, and nothing is buffered without end: a reader that does not take what it was
sent within a bounded time loses its connection. While a stream is open it is never silent for long, because proxies
cut what looks dead; a comment, which clients skip, is enough.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog
from aiohttp import web

from gateway.transports.accept import EVENT_STREAM

log: Final = structlog.get_logger()

PATIENCE_SECONDS: Final = 30.0
"""How long a write may wait for the reader to make room."""

MESSAGE: Final = "message"
"""The type of events that are JSON-RPC messages; the only other one is HTTP+SSE's `endpoint`."""

_COMMENT: Final = b":\n\n"
_HEADERS: Final = {
    "Content-Type": EVENT_STREAM,
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # nginx would hold events back until its buffer is full
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The stream's times, in seconds."""

    keepalive: float
    """Between two signs of life."""
    patience: float = PATIENCE_SECONDS


class EventStream:
    """One response that may become a stream. Each event is one write."""

    __slots__ = ("_beating", "_headers", "_lock", "_pace", "_request", "_response", "_timer")

    def __init__(self, request: web.Request, *, pace: Pace, headers: Mapping[str, str]) -> None:
        self._request = request
        self._pace = pace
        self._headers = headers
        self._response: web.StreamResponse | None = None
        self._lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._beating: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether anything has been written, so that status and media type can no longer be chosen."""
        return self._response is not None

    def open_after(self, seconds: float) -> None:
        """Open the stream with a comment at that time, unless an event or `close` comes first."""
        self._beat_in(seconds)

    async def open(self) -> None:
        """Open it now, so that the client hears that it is connected."""
        await self._write(_COMMENT)

    async def send(self, data: bytes, *, event: str = MESSAGE) -> None:
        """Write one event of a type; `data` is one line.

        Raises:
            ConnectionError: the reader is gone, or was dropped because it does not read.
        """
        await self._write(_event(data, event))

    async def close(self, data: bytes | None = None) -> web.StreamResponse:
        """End the stream, with a last event if there is one to send.

        Raises:
            ConnectionError: as `send`.
        """
        self.abandon()
        async with self._lock:
            response = await self._opened()
            await self._bounded(response.write_eof(b"" if data is None else _event(data)))
            return response

    def abandon(self) -> None:
        """Stop writing: the reader is gone, or the answer goes another way."""
        if self._timer is not None:
            self._timer.cancel()
        if self._beating is not None:
            self._beating.cancel()
        self._timer = self._beating = None

    async def _write(self, chunk: bytes) -> None:
        async with self._lock:
            response = await self._opened()
            await self._bounded(response.write(chunk))

    async def _opened(self) -> web.StreamResponse:
        if self._response is None:
            response = web.StreamResponse(headers={**_HEADERS, **self._headers})
            await response.prepare(self._request)
            self._response = response
            if self._timer is None:
                self._beat_in(self._pace.keepalive)
        return self._response

    async def _bounded(self, writing: Awaitable[None]) -> None:
        await write_within(self._pace.patience, self._request, writing)

    def _beat_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._beat)

    def _beat(self) -> None:
        self._beating = asyncio.get_running_loop().create_task(self._show_life(), name="event stream keep-alive")

    async def _show_life(self) -> None:
        with suppress(ConnectionError):
            await self._write(_COMMENT)
            self._beat_in(self._pace.keepalive)


async def write_within(seconds: float, request: web.Request, writing: Awaitable[None]) -> None:
    """Wait for a write, and drop the connection of a reader that makes no room for it.

    Raises:
        ConnectionError: the reader is gone, or was dropped.
    """
    try:
        async with asyncio.timeout(seconds):
            await writing
    except TimeoutError:
        log.warning("slow reader dropped", peer=request.remote, path=request.path, waited_seconds=seconds)
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the reader does not read") from None


def _event(data: bytes, event: str = MESSAGE) -> bytes:
    # JSON holds no line break, so one `data` field is enough.
    return b"event: %b\ndata: %b\n\n" % (event.encode(), data)
