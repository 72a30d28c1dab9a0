"""The response to one POST, which becomes an event stream only if necessary.

Until something is written, an error can have its own HTTP status and a result can be `application/json`, which all
clients and proxies support. The response becomes an event stream if a notification comes first or the result takes
long.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final

import structlog
from aiohttp import web
from msgspec.structs import replace

from gateway.access.auth_error import insufficient_scope
from gateway.errors import ErrorCode, RpcError
from gateway.json_types import JsonObject
from gateway.protocol import results
from gateway.protocol.exchange import Reply
from gateway.transports.http.request import HttpRequest
from gateway.transports.http.request_limits import StreamTimeouts
from gateway.transports.http.response import response_fields, whole_response
from gateway.transports.sse.event_stream import EventStream, encode_event, write_in_parts, write_within
from gateway.transports.write_quota import EXEMPT_BYTES
from gateway.wire import jsonrpc

log: Final = structlog.get_logger(__name__)

SOON_SECONDS: Final = 1.0
"""The time in seconds after which a response becomes an event stream, if the client accepts one."""

_NO_ROOM: Final = replace(
    results.error_reply(
        RpcError(ErrorCode.INTERNAL_ERROR, "Too many response bytes are waiting to be read (limits.unread)"),
        request_id=None,
        revision=None,
        status=503,
    ),
    retry_after=30,
)


class DeferredResponses:
    """Creates responses, and opens an event stream for late ones so that proxies keep the connection.

    One timer serves all responses, because all have the same timeout.
    """

    __slots__ = ("_due", "_timer", "pace")

    def __init__(self, pace: StreamTimeouts) -> None:
        self.pace: Final = pace
        self._due: Final[dict[DeferredResponse, float]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def open(
        self,
        request: HttpRequest,
        *,
        headers: Mapping[str, str] | None = None,
        preamble: Callable[[], bytes] = bytes,
    ) -> "DeferredResponse":
        response = DeferredResponse(self, request, headers=headers, preamble=preamble)
        if request.accepted.names_event_stream:
            self._due[response] = time.monotonic() + SOON_SECONDS
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(SOON_SECONDS, self._open_due)
        return response

    def discard(self, response: "DeferredResponse") -> None:
        self._due.pop(response, None)

    def _open_due(self) -> None:
        self._timer = None
        while self._due:
            # Dictionaries keep insertion order, so the first response is due first.
            response, due = next(iter(self._due.items()))
            if (left := due - time.monotonic()) > 0:
                self._timer = asyncio.get_running_loop().call_later(left, self._open_due)
                return
            del self._due[response]
            response.stream.open_soon()


class DeferredResponse:
    __slots__ = ("_accepted", "_headers", "_is_over", "_owner", "_preamble", "_request", "_stream", "_whole", "caller")

    def __init__(
        self,
        owner: DeferredResponses,
        request: HttpRequest,
        *,
        headers: Mapping[str, str] | None = None,
        preamble: Callable[[], bytes] = bytes,
    ) -> None:
        """`headers` replace the request's response headers. `preamble` returns the start of an event stream."""
        self._owner: Final = owner
        self._request: Final = request
        self._headers: Final = request.response_headers if headers is None else headers
        self._preamble: Final = preamble
        self._accepted: Final = request.accepted
        self.caller: Final = request.caller
        self._is_over = False
        self._whole: Reply | None = None
        self._stream: EventStream | None = None

    @property
    def stream(self) -> EventStream:
        if self._stream is None:
            self._stream = EventStream(
                self._request.raw,
                pace=self._owner.pace,
                headers=self._headers,
                preamble=self._preamble(),
                caller=self.caller.rate_limit_key,
            )
        return self._stream

    @property
    def is_open(self) -> bool:
        """Return whether the response has become an event stream."""
        return self._stream is not None and self._stream.is_open

    @property
    def takes_events(self) -> bool:
        return self._accepted.event_stream

    async def send(self, notification: JsonObject) -> bool:
        """Send a notification. Clients that do not accept event streams receive only the response."""
        await asyncio.sleep(0)  # Let other tasks run even if a tool sends progress in a tight loop.
        if self._is_over or not self.takes_events:
            return False
        # The call must not fail. The handler detects the end of the connection.
        with suppress(ConnectionError):
            await self.stream.send(jsonrpc.encode(notification))
        return True

    async def write(self, chunk: bytes) -> None:
        """Write encoded events. See `EventStream.write`."""
        await self.stream.write(chunk)

    def abort(self) -> None:
        self.stream.abort()

    async def close_stream(self, retry_ms: int | None) -> None:
        """Do nothing: without event ids, the client could not resume."""

    def finish(self, reply: Reply) -> Awaitable[web.StreamResponse]:
        """Write the response, as the stream's last event or as a whole.

        The returned awaitable does not hold the reply, which is as large as its event.

        Raises:
            ConnectionError: The reader disconnected.
        """
        last = reply.body if self.choose_form(reply) else None
        return self.end(None if last is None else encode_event(last))

    def choose_form(self, reply: Reply) -> bool:
        """Return whether the response is an event. Otherwise `end` writes it as a whole."""
        self._is_over = True
        self._owner.discard(self)
        # Event streams have status 200, so any other status requires JSON.
        wants_event = reply.body is not None and reply.status == 200 and not self._accepted.json
        if wants_event or (self._stream is not None and self._stream.is_open):
            return True
        if self._stream is not None:
            self._stream.stop()
        self._whole = reply
        return False

    async def end(self, last: bytes | None) -> web.StreamResponse:
        """Write the whole response, or end the stream with a last event.

        Raises:
            ConnectionError: The reader disconnected.
        """
        if self._whole is None:
            self._owner.discard(self)
            return await self.stream.close(last)
        reply = self._whole
        self._whole = None
        headers = self._headers
        if reply.missing_scopes:  # RFC 6750 §3.1: name the missing scopes.
            headers = {**headers, **insufficient_scope(reply.missing_scopes).headers(self._request.challenge)}
        if reply.body is None or len(reply.body) <= EXEMPT_BYTES:
            return whole_response(reply, headers=headers)
        return await self._write_large(reply, reply.body, headers)

    async def _write_large(self, reply: Reply, body: bytes, headers: Mapping[str, str]) -> web.StreamResponse:
        pace, caller = self._owner.pace, self.caller.rate_limit_key
        # Before the head is written, so that a refusal can have its own status.
        quota, seconds = pace.quota, pace.write_timeout
        if not quota.take(caller, len(body)) and not await quota.wait(caller, len(body), seconds=seconds):
            log.warning("response refused", why="its caller reads too slowly", peer=self._request.raw.remote)
            return whole_response(_NO_ROOM, headers=headers)
        try:
            response = web.StreamResponse(status=reply.status, headers=response_fields(reply, headers))
            response.content_length = len(body)
            await response.prepare(self._request.raw)
            await write_within(seconds, self._request.raw, write_in_parts(response, body, is_end=True))
        finally:
            quota.release_bytes(caller, len(body))
        return response

    def stop(self) -> None:
        """Stop writing: the connection is closed or about to close."""
        self._is_over = True
        self._owner.discard(self)
        if self._stream is not None:
            self._stream.stop()
