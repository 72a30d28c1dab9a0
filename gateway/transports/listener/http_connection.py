"""One connection of an HTTP listener, with limits on connections, idle time and chunk framing.

Threats: connections that send nothing, headers that arrive byte by byte (slow loris), and callers with too many
connections. Chunk extensions and trailers (RFC 9112 §7.1) are limited here, because only the parser sees them.
"""

import asyncio
import logging
from http import HTTPStatus
from typing import Final, cast

import msgspec
import structlog
from aiohttp import StreamReader, web

from gateway.access.identity import network_of
from gateway.config.models.server import Quota
from gateway.transports.errors import HttpError
from gateway.transports.http.body import FramingError
from gateway.transports.http.host_and_origin import is_loopback_address
from gateway.transports.http.response import SERVER, refuse
from gateway.transports.quota import ResourceQuota, connection_quota

log: Final = structlog.get_logger(__name__)

AIOHTTP_LOG: Final = logging.getLogger("gateway.http")
"""Logger for aiohttp. Its messages are hidden, because aiohttp logs a traceback for each malformed request."""

_BAD_REQUEST: Final = 400
_MAX_LINE_LENGTH: Final = 8190
"""The maximum size of the request line and of each header, in bytes."""
_MAX_FIELDS: Final = 128
_BAD_HEAD: Final = (
    f"The request head is malformed or too large (limits: {_MAX_LINE_LENGTH} bytes per line, {_MAX_FIELDS} headers)"
)
_LINGER_SECONDS: Final = 10.0
"""The time to read the rest of a request body after an early response. Closing at once could lose the response."""
_END_OF_HEAD: Final = b"\r\n\r\n"
_FRAMING_BYTES: Final = 65_536
_FRAMING_PER_BYTE: Final = 8
"""The framing bytes allowed per byte of content. A one-byte chunk has five bytes of framing."""


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    quota: ResourceQuota = msgspec.field(default_factory=lambda: connection_quota(Quota()))
    handshake_seconds: float = 10.0
    """The timeout of a TLS handshake."""
    head_seconds: float = 30.0
    """The timeout of a request head, from the start of the connection or from the first byte of the head."""
    idle_seconds: float = 660.0
    """The timeout between a response and the next request. Proxies keep connections for up to 600 seconds and should
    close first.
    """

    def caller_behind(self, peer: object) -> str:
        """Return the caller for the connection quota. An empty string means no limit per caller.

        By default, loopback connections have no limit per caller, because a local proxy can open them for many clients.
        """
        address = str(peer[0]) if isinstance(peer, tuple) else ""
        if self.quota.has_default_share and is_loopback_address(address):
            return ""
        return network_of(address)


class HttpConnection(web.RequestHandler):
    """aiohttp's protocol for one connection, with additional limits."""

    def __init__(
        self, server: web.Server, connection_limits: ConnectionLimits, *, counted_for: str | None = None
    ) -> None:
        """`counted_for` is the caller for whom the quota has already counted this connection."""
        self._linger_seconds: Final = min(_LINGER_SECONDS, connection_limits.head_seconds)
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=connection_limits.idle_seconds,
            lingering_time=self._linger_seconds,
            access_log=cast("logging.Logger", None),  # No access log, as in aiohttp's runner.
            logger=AIOHTTP_LOG,
            # `read_body` rejects compressed bodies, so do not let aiohttp decompress them first.
            auto_decompress=False,
            max_line_size=_MAX_LINE_LENGTH,
            max_field_size=_MAX_LINE_LENGTH,
            max_headers=_MAX_FIELDS,
        )
        self._connection_limits: Final = connection_limits
        self._caller = counted_for
        self.has_begun = False
        self.last_head: object | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._has_partial_head = False
        self._is_idle = True
        """Whether the next byte starts a new head. False while a request is served or its body is received."""
        self._body: StreamReader | None = None
        self._body_bytes = 0
        """Bytes received for the body, including its framing."""
        self._ignores_input = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.has_begun = True
        if self._caller is None:
            caller = self._connection_limits.caller_behind(transport.get_extra_info("peername"))
            refusal = self._connection_limits.quota.refusal_of(caller)
            if refusal is not None:
                self._send_error(refusal)
                return
            self._connection_limits.quota.acquire(caller)
            self._caller = caller
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        if self._is_idle and not data.isspace():  # RFC 9112 §2.2: ignore empty lines before a request.
            self._has_partial_head = True
            if self._deadline is None and data.find(_END_OF_HEAD) < 0:  # Most heads arrive in one piece.
                self._wait_for_head()
        try:
            super().data_received(data)
        except IndexError:  # raised for the target `http://[]@/`: https://github.com/aio-libs/yarl/issues/1822
            self._send_error(HttpError(status=_BAD_REQUEST, message=_BAD_HEAD))
            return
        if self._body is not None:
            self._count_framing(self._body, len(data))

    def _count_framing(self, body: StreamReader, received: int) -> None:
        """Reject a chunked body whose framing is far larger than its content."""
        self._body_bytes += received
        if self._body_bytes - body.total_bytes > _FRAMING_BYTES + _FRAMING_PER_BYTE * body.total_bytes:
            self._refuse_body(body)
        elif not body.is_eof():
            return
        self._body = None

    def _refuse_body(self, body: StreamReader) -> None:
        body.set_exception(FramingError())
        self._ignores_input = True
        self.close()  # aiohttp closes the connection after the response.

    def request_begun(self, *, chunked_body: StreamReader | None) -> None:
        """Record that a request head was read, and start to count the bytes of a chunked body."""
        self._stop_waiting()
        self._has_partial_head = self._is_idle = False
        self._body, self._body_bytes = chunked_body, 0

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_waiting()
        if self._caller is not None:
            self._connection_limits.quota.release(self._caller)
            self._caller = None
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Replace aiohttp's responses to malformed requests and internal errors, which reveal the aiohttp version."""
        # `ConnectionError` means that the client disconnected.
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(exc, ConnectionError):
            log.error("request handler failed", path=request.path, method=request.method, exc_info=exc or True)
        # aiohttp raises `ConnectionError` here if part of a response was already sent.
        super().handle_error(request, status, exc, message)
        text = _BAD_HEAD if status == _BAD_REQUEST else "Internal error"
        response = refuse(HttpError(status=status, message=text), headers=SERVER)
        response.force_close()
        return response

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send a response. Errors of aiohttp's router get our `Server` header instead of aiohttp's version."""
        if self._ignores_input:
            resp.force_close()
        if isinstance(resp, web.HTTPException):
            resp.headers.update(SERVER)
        resp, is_gone = await super().finish_response(request, resp, start_time)
        request.content.on_eof(self._mark_idle)
        if self._ignores_input:
            await asyncio.sleep(self._linger_seconds)  # Further input is dropped. A disconnect ends the wait.
        return resp, is_gone

    def _mark_idle(self) -> None:
        self._is_idle = True

    def _wait_for_head(self) -> None:
        self._deadline = asyncio.get_running_loop().call_later(
            self._connection_limits.head_seconds, self._on_head_timeout
        )

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_head_timeout(self) -> None:
        self._deadline = None
        # Close without a response, because browsers and connection pools connect before they have a request.
        if not self._has_partial_head:
            self.force_close()
            return
        seconds = self._connection_limits.head_seconds
        message = f"The request head did not arrive within {seconds:g} seconds (listen.receive_timeout)"
        self._send_error(HttpError(status=408, message=message))

    def _send_error(self, refusal: HttpError) -> None:
        if self.transport is not None:
            # A closed transport still sends the data that was written before.
            self.transport.write(_response(refusal))
        self.force_close()


def _response(refusal: HttpError) -> bytes:
    """Format an error response as bytes, because aiohttp cannot send a response without a request."""
    answer = refuse(refusal, headers={**SERVER, "Connection": "close"})
    body = answer.body if isinstance(answer.body, bytes) else b""
    fields = {**answer.headers, "Content-Length": str(len(body))}
    lines = [f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}", *map(": ".join, fields.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body
