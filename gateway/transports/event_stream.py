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
    "Cache-Control": "no-cache, no-transform",  # nor may a proxy compress it, and hold it back for that
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

    __slots__ = ("_beating", "_headers", "_lock", "_pace", "_preamble", "_request", "_response", "_timer")

    def __init__(self, request: web.Request, *, pace: Pace, headers: Mapping[str, str], preamble: bytes = b"") -> None:
        """Do nothing yet; `preamble` is what the stream begins with, whenever it opens."""
        self._request = request
        self._pace = pace
        self._headers = headers
        self._preamble = preamble
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
        await self.write(b"" if self._preamble else _COMMENT)

    async def send(self, data: bytes, *, event: str = MESSAGE) -> None:
        """Write one event of a type; `data` is one line.

        Raises:
            ConnectionError: the reader is gone, or was dropped because it does not read.
        """
        await self.write(encode_event(data, kind=event))

    async def write(self, chunk: bytes) -> None:
        """Write what is an event already, or several.

        Raises:
            ConnectionError: as `send`.
        """
        async with self._lock:
            preamble = b"" if self.is_open else self._preamble
            response = await self._opened()
            await self._bounded(response.write(preamble + chunk))

    async def close(self, last: bytes | None = None) -> web.StreamResponse:
        """End the stream, with a last event if there is one.

        Raises:
            ConnectionError: as `send`.
        """
        self.abandon()
        async with self._lock:
            preamble = b"" if self.is_open else self._preamble
            response = await self._opened()
            await self._bounded(response.write_eof(preamble + (last or b"")))
            return response

    def abandon(self) -> None:
        """Stop writing: the reader is gone, or the answer goes another way."""
        if self._timer is not None:
            self._timer.cancel()
        if self._beating is not None:
            self._beating.cancel()
        self._timer = self._beating = None

    def cut(self) -> None:
        """Drop the connection, whatever is being written on it."""
        if self._request.transport is not None:
            self._request.transport.abort()

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
            await self.write(_COMMENT)
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


def encode_event(data: bytes, *, kind: str = MESSAGE, event_id: bytes | None = None) -> bytes:
    """An event; `data` is one line."""
    # JSON holds no line break, so one `data` field is enough.
    plain = b"event: %b\ndata: %b\n\n" % (kind.encode(), data)
    return plain if event_id is None else b"id: %b\n%b" % (event_id, plain)
