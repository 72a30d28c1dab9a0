"""One connection of the HTTP listener: counted against the limits, and closed when it is silent for too long.

Threats answered here: connections that send nothing, or a head byte by byte (slow loris), and one caller that opens as
many as the process may have descriptors. What comes after the head is bounded where it is read, but for what only the
parser sees of it: extensions and trailers of chunks (RFC 9112 §7.1), which are bounded here.
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
from gateway.transports.http.quota import ResourceQuota, connection_quota
from gateway.transports.http.response import SERVER, refuse

log: Final = structlog.get_logger()

IDLE: Final = logging.getLogger("gateway.http")
"""aiohttp logs each malformed request with a traceback; our own mistakes are logged by `handle_error`."""

_BAD_REQUEST: Final = 400
_MAX_LINE_LENGTH: Final = 8190
"""Bytes of the request line, and of a field."""
_MAX_FIELDS: Final = 128
_NO_HEAD: Final = (
    f"This is no head of an HTTP request, or it is too large: {_MAX_LINE_LENGTH} bytes for a line, {_MAX_FIELDS} fields"
)
_LINGER_SECONDS: Final = 10.0
"""After an answer, for the rest of a body that nobody reads: who still sends might not see the answer otherwise."""
_END_OF_HEAD: Final = b"\r\n\r\n"
_FRAMING_BYTES: Final = 65_536
_FRAMING_PER_BYTE: Final = 8
"""A chunk of one byte is framed with five."""


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a listener: how many connections it takes, and how long each may be silent."""

    quota: ResourceQuota = msgspec.field(default_factory=lambda: connection_quota(Quota()))
    handshake_seconds: float = 10.0
    """To agree on TLS."""
    head_seconds: float = 30.0
    """From a connection's beginning to the end of its first request's head, and from the first byte of a later one."""
    idle_seconds: float = 660.0
    """From an answer to the next whole head. Proxies keep connections for up to 600: who lets go first loses none."""

    def caller_behind(self, peer: object) -> str:
        """Return the caller whose share a connection is; empty for this machine, where it may be a proxy."""
        address = str(peer[0]) if isinstance(peer, tuple) else ""
        if self.quota.is_share_unsaid and is_loopback_address(address):
            return ""
        return network_of(address)


class HttpConnection(web.RequestHandler):
    """aiohttp's protocol for one connection, with limits on its number, its silence and the framing of its bodies."""

    __slots__ = (
        "_body",
        "_body_bytes",
        "_caller",
        "_connection_limits",
        "_deadline",
        "_has_spoken",
        "_is_given_up",
        "_is_idle",
        "_linger_seconds",
        "has_begun",
        "last_head",
    )

    def __init__(
        self, server: web.Server, connection_limits: ConnectionLimits, *, counted_for: str | None = None
    ) -> None:
        """Do nothing yet; `counted_for` is the caller of whose share it was taken already."""
        self._linger_seconds: Final = min(_LINGER_SECONDS, connection_limits.head_seconds)
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=connection_limits.idle_seconds,
            lingering_time=self._linger_seconds,
            access_log=cast("logging.Logger", None),  # as its own runner does: none
            logger=IDLE,
            # `read_body` refuses a `Content-Encoding`; aiohttp would unfold the body before anybody is asked.
            auto_decompress=False,
            max_line_size=_MAX_LINE_LENGTH,
            max_field_size=_MAX_LINE_LENGTH,
            max_headers=_MAX_FIELDS,
        )
        self._connection_limits: Final = connection_limits
        self._caller = counted_for
        self.has_begun = False
        self.last_head: object | None = None
        """What the middleware knows of the last request that came on it."""
        self._deadline: asyncio.TimerHandle | None = None
        self._has_spoken = False
        """Whether there is a part of a head."""
        self._is_idle = True
        """Whether the next byte begins a head: not while a request is served, nor while the rest of its body comes."""
        self._body: StreamReader | None = None
        """The chunked body that is being received."""
        self._body_bytes = 0
        """Bytes received for it since its request began, framing included."""
        self._is_given_up = False
        """Whether nothing more that comes is looked at."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.has_begun = True
        if self._caller is None:
            caller = self._connection_limits.caller_behind(transport.get_extra_info("peername"))
            refusal = self._connection_limits.quota.refusal_of(caller)
            if refusal is not None:
                self._turn_away(refusal)
                return
            self._connection_limits.quota.acquire(caller)
            self._caller = caller
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        if self._is_idle and not data.isspace():  # RFC 9112 §2.2: empty lines before a request are ignored
            self._has_spoken = True
            if self._deadline is None and data.find(_END_OF_HEAD) < 0:  # most heads come whole
                self._wait_for_head()
        try:
            super().data_received(data)
        except IndexError:  # for the target `http://[]@/`: https://github.com/aio-libs/yarl/issues/1822
            self._turn_away(HttpError(status=_BAD_REQUEST, message=_NO_HEAD))
            return
        if self._body is not None:
            self._count_framing(self._body, len(data))

    def _count_framing(self, body: StreamReader, received: int) -> None:
        """Refuse a chunked body whose extensions and trailers outweigh its content."""
        self._body_bytes += received
        if self._body_bytes - body.total_bytes > _FRAMING_BYTES + _FRAMING_PER_BYTE * body.total_bytes:
            self._give_up_body(body)
        elif not body.is_eof():
            return
        self._body = None

    def _give_up_body(self, body: StreamReader) -> None:
        body.set_exception(FramingError())
        self._is_given_up = True
        self.close()  # after the answer

    def request_begun(self, *, chunked_body: StreamReader | None) -> None:
        """Note that a whole head was read, or something that cannot be one; bytes of the body are counted from here."""
        self._stop_waiting()
        self._has_spoken = self._is_idle = False
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
        """Answer what could not be read, or what a bug of ours broke; aiohttp's own words tell its version."""
        # A `ConnectionError`: the client went away.
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(exc, ConnectionError):
            log.error("request handler failed", path=request.path, method=request.method, exc_info=exc or True)
        # For the `ConnectionError` that it raises if a part of an answer has been sent; its own answer is not used.
        super().handle_error(request, status, exc, message)
        said = _NO_HEAD if status == _BAD_REQUEST else "Internal error"
        response = refuse(HttpError(status=status, message=said), headers=SERVER)
        response.force_close()
        return response

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer; those that the router gives by itself are to look like ours."""
        if self._is_given_up:
            resp.force_close()
        if isinstance(resp, web.HTTPException):
            resp.headers.update(SERVER)
        resp, is_gone = await super().finish_response(request, resp, start_time)
        request.content.on_eof(self._rest)
        if self._is_given_up:
            await asyncio.sleep(self._linger_seconds)  # what comes is dropped; cut short by whoever hangs up
        return resp, is_gone

    def _rest(self) -> None:
        self._is_idle = True

    def _wait_for_head(self) -> None:
        self._deadline = asyncio.get_running_loop().call_later(self._connection_limits.head_seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        # Browsers and connection pools connect ahead of use: without a request there is nothing to answer.
        if not self._has_spoken:
            self.force_close()
            return
        message = (
            f"The head did not arrive within {self._connection_limits.head_seconds:g} seconds (listen.receive_timeout)"
        )
        self._turn_away(HttpError(status=408, message=message))

    def _turn_away(self, refusal: HttpError) -> None:
        """Say why in as few bytes as can be, and close."""
        if self.transport is not None:
            # A transport that is closed still sends what was written on it.
            self.transport.write(_response(refusal))
        self.force_close()


def _response(refusal: HttpError) -> bytes:
    """The same without aiohttp, which has no request here that it could answer."""
    answer = refuse(refusal, headers={**SERVER, "Connection": "close"})
    body = answer.body if isinstance(answer.body, bytes) else b""
    fields = {**answer.headers, "Content-Length": str(len(body))}
    lines = [f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}", *map(": ".join, fields.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body
