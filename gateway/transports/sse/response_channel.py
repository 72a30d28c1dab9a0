"""The response to one request, which becomes a stream of server-sent events (WHATWG HTML §9.2) only if needed.

Until the first event, the response can still have an error status or the type `application/json`, which all clients and
proxies support. Slow readers are disconnected after a timeout. Comments keep idle streams alive, because proxies close
silent connections.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, NoReturn

import structlog
from aiohttp import web
from msgspec.structs import replace

from gateway.access.auth_error import insufficient_scope
from gateway.errors import ErrorCode, RpcError
from gateway.json_types import JsonObject
from gateway.protocol import results
from gateway.protocol.exchange import Caller, Reply
from gateway.transports.http.request import HttpRequest
from gateway.transports.http.response import response_fields, whole_response
from gateway.transports.quota import EXEMPT_BYTES, RequestLimits
from gateway.wire import jsonrpc
from gateway.wire.accept import EVENT_STREAM

log: Final = structlog.get_logger(__name__)

SOON_SECONDS: Final = 1.0
"""After this many seconds, an unfinished response becomes an event stream, if the client accepts event streams."""
PART_BYTES: Final = 256 * 1024
"""Large events and responses are written in parts of this size."""
_COMMENT: Final = b":\n\n"
_HEADERS: Final = {
    "Content-Type": EVENT_STREAM,
    "Cache-Control": "no-cache, no-transform",  # Also disables compression, which would delay events.
    "X-Accel-Buffering": "no",  # nginx would buffer events.
}
_QUOTA_REACHED: Final = replace(
    results.error_reply(
        RpcError(ErrorCode.INTERNAL_ERROR, "Too many response bytes are waiting to be read (limits.unread)"),
        request_id=None,
        revision=None,
        status=503,
    ),
    retry_after=30,
)


class ResponseChannel:
    """Writes the response to one request, either as one JSON document or as an event stream."""

    def __init__(
        self,
        request: HttpRequest,
        *,
        limits: RequestLimits,
        headers: Mapping[str, str] | None = None,
        preamble: Callable[[], bytes] = bytes,
        until_close: bool = False,
    ) -> None:
        """Create the channel.

        Args:
            request: The request to respond to.
            limits: Timeouts and the quota of unread bytes.
            headers: The response headers. The default is `request.response_headers`.
            preamble: Returns the first bytes of an event stream.
            until_close: Whether closing the connection ends an event stream (see `_UnframedResponse`).
        """
        self.caller: Final[Caller] = request.caller
        self._request: Final = request
        self._loop: Final = request.task.get_loop()  # faster than `get_running_loop`, which calls the kernel
        self._limits: Final = limits
        self._headers: Final = request.response_headers if headers is None else headers
        self._preamble: Final = preamble
        self._until_close: Final = until_close
        self._response: web.StreamResponse | None = None
        self._whole: Reply | None = None
        self._exempt = 0  # Queued bytes that are exempt from the quota.
        self._is_over = False
        self._is_closed = False
        self._lock: Final = asyncio.Lock()
        self._pending = 0
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None
        self._beating: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Return whether the response has become an event stream."""
        return self._response is not None or self._pending > 0

    @property
    def takes_events(self) -> bool:
        return self._request.accepted.event_stream

    def open_if_late(self) -> None:
        """Open an event stream after `SOON_SECONDS` without a response, if the `Accept` header names event streams."""
        if self._request.accepted.names_event_stream:
            self._beat_in(SOON_SECONDS)

    async def open(self) -> None:
        """Open the event stream before the first event, so that the client receives the response head at once."""
        await self.write(b"")

    async def send(self, notification: JsonObject) -> bool:
        """Send a notification. Return False if the response has ended or the client does not accept event streams."""
        await asyncio.sleep(0)  # Let other tasks run even if a tool sends progress in a tight loop.
        if self._is_over or not self.takes_events:
            return False
        # A disconnect must not fail the call. The handler of the request detects the disconnect.
        with suppress(ConnectionError):
            await self.write(encode_event(jsonrpc.encode(notification)))
        return True

    async def write(self, chunk: bytes, *, is_end: bool = False) -> web.StreamResponse:
        """Write encoded events, and end the stream if `is_end` is True.

        Raises:
            ConnectionError: The reader disconnected or was too slow.
        """
        # All writes of a stream share one exemption, because HTTP+SSE writes the responses of many calls to one stream.
        counted = len(chunk) if self._exempt + len(chunk) > EXEMPT_BYTES else 0
        exempt = len(chunk) - counted
        self._exempt += exempt
        self._pending += 1
        try:
            await self._take_room(counted)  # Wait before taking the lock, because its queue is unbounded.
            try:
                async with self._lock:
                    if self._is_closed:
                        raise ConnectionResetError("the stream has ended")
                    # Set before the write, so that nothing follows the last chunk even if the write fails.
                    self._is_closed = is_end
                    preamble = b"" if self._response is not None else self._preamble()
                    response = await self._opened()
                    data = preamble + chunk if chunk or preamble or is_end else _COMMENT
                    await _write_in_time(self._request.raw, response, data, limits=self._limits, is_end=is_end)
                    return response
            finally:
                if counted:
                    self._limits.quota.release(self.caller.rate_limit_key, counted)
        finally:
            self._exempt -= exempt
            self._pending -= 1

    async def close_stream(self, retry_ms: int | None) -> None:
        """Do nothing, because the client cannot resume a stream without event ids."""

    def finish(self, reply: Reply) -> Awaitable[web.StreamResponse]:
        """Return an awaitable that writes the response, as the last event of a stream or as a complete body.

        While an event is written, only the encoded event is kept in memory, not the reply.

        Raises:
            ConnectionError: The reader disconnected.
        """
        last = reply.body if self.choose_format(reply) else None
        return self.end(None if last is None else encode_event(last))

    def choose_format(self, reply: Reply) -> bool:
        """Return True if the reply must be sent as an event. Otherwise store the reply for `end`, and return False."""
        self._is_over = True
        # Event streams have status 200, so any other status requires JSON.
        wants_event = reply.body is not None and reply.status == 200 and not self._request.accepted.json
        if wants_event or self.is_open:
            return True
        self.stop()
        self._whole = reply
        return False

    async def end(self, last: bytes | None = None) -> web.StreamResponse:
        """Write the reply that `choose_format` has stored. Otherwise write the `last` event and end the stream.

        Raises:
            ConnectionError: The reader disconnected.
        """
        reply, self._whole = self._whole, None
        if reply is None:
            self.stop()
            return await self.write(last or b"", is_end=True)
        return await send_reply(self._request, reply, limits=self._limits, headers=self._headers)

    def stop(self) -> None:
        """Stop keep-alive comments and further notifications, because the response or its connection ends."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._beating is not None:
            self._beating.cancel()
        self._timer = self._beating = None

    def abort(self) -> None:
        if self._request.raw.transport is not None:
            self._request.raw.transport.abort()

    async def _opened(self) -> web.StreamResponse:
        if self._response is None:
            kind = _UnframedResponse if self._until_close else web.StreamResponse
            response = kind(headers={**_HEADERS, **self._headers})
            await response.prepare(self._request.raw)
            self._response = response
            if self._timer is None and not self._is_closed:
                self._beat_in(self._limits.keepalive)
        return self._response

    async def _take_room(self, size: int) -> None:
        """Reserve quota for `size` bytes. A size of 0 (an exempt write) only waits for this stream's earlier writes."""
        quota, caller = self._limits.quota, self.caller.rate_limit_key
        if (not size and not self._waiting) or quota.take(caller, size):
            return
        self._waiting += 1
        try:
            is_granted = await quota.wait(caller, size, seconds=self._limits.write_timeout)
        finally:
            self._waiting -= 1
        if not is_granted:
            _drop_reader(self._request.raw)

    def _beat_in(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._beat)

    def _beat(self) -> None:
        self._beating = self._loop.create_task(self._show_life(), name="event stream keep-alive")

    async def _show_life(self) -> None:
        with suppress(ConnectionError):
            if not self._pending:  # Otherwise an event is being written.
                await self.write(_COMMENT)
            self._beat_in(self._limits.keepalive)
        self._beating = None  # Free the finished task.


class _UnframedResponse(web.StreamResponse):
    """A response whose body ends when the connection closes (RFC 9112 §6.3, item 8).

    A killed process cannot write the last chunk of a chunked body. Official Python clients treat a missing last chunk
    as a failure, and give up after the second failure.
    """

    def __init__(self, *, headers: Mapping[str, str]) -> None:
        super().__init__(headers=headers)
        self.force_close()

    @property
    def content_length(self) -> int:
        """A dummy size, because aiohttp sends chunks if the size is unknown. No `Content-Length` header is sent."""
        return sys.maxsize

    @content_length.setter
    def content_length(self, value: int | None) -> None:
        raise NotImplementedError


async def send_reply(
    request: HttpRequest, reply: Reply, *, limits: RequestLimits, headers: Mapping[str, str]
) -> web.StreamResponse:
    """Write a response with a complete body. A large body counts towards the quota until all of it is written.

    Raises:
        ConnectionError: The reader disconnected or was too slow.
    """
    if reply.missing_scopes:  # RFC 6750 §3.1: name the missing scopes.
        headers = {**headers, **insufficient_scope(reply.missing_scopes).headers(request.challenge)}
    if reply.body is None or len(reply.body) <= EXEMPT_BYTES:
        return whole_response(reply, headers=headers)
    body, raw, quota, caller = reply.body, request.raw, limits.quota, request.caller.rate_limit_key
    # Reserve quota before the head is written, so that a refusal can have a different status.
    if not quota.take(caller, len(body)) and not await quota.wait(caller, len(body), seconds=limits.write_timeout):
        log.warning("response refused", why="its caller reads too slowly", peer=raw.remote)
        return whole_response(_QUOTA_REACHED, headers=headers)
    try:
        response = web.StreamResponse(status=reply.status, headers=response_fields(reply, headers))
        response.content_length = len(body)
        await response.prepare(raw)
        await _write_in_time(raw, response, body, limits=limits, is_end=True)
    finally:
        quota.release(caller, len(body))
    return response


async def _write_in_time(
    request: web.Request, response: web.StreamResponse, data: bytes, *, limits: RequestLimits, is_end: bool
) -> None:
    try:
        async with asyncio.timeout(limits.write_timeout):
            await _write_in_parts(response, data, is_end=is_end)
    except TimeoutError:
        _drop_reader(request)


def _drop_reader(request: web.Request) -> NoReturn:
    log.warning("slow reader dropped", peer=request.remote, path=request.path)
    if request.transport is not None:
        request.transport.abort()
    raise ConnectionResetError("the client reads too slowly") from None


async def _write_in_parts(response: web.StreamResponse, data: bytes, *, is_end: bool) -> None:
    """Write large data in parts, because the transport would otherwise copy all of the data at once."""
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


def encode_event(data: bytes, *, kind: str = "message", event_id: bytes | None = None) -> bytes:
    """Encode a server-sent event. `data` must be one line, and `kind` is the event type."""
    # JSON contains no line breaks, so one `data` line is enough.
    id_field = b"" if event_id is None else b"id: %b\n" % event_id
    return b"%bevent: %b\ndata: %b\n\n" % (id_field, kind.encode(), data)
