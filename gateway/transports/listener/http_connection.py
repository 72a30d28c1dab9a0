"""One connection of the HTTP listener: whether there is room for it, and how long it may be silent.

Threats answered here: connections that send nothing, or a head byte by byte (slow loris), and one caller that opens as
many as the process may have descriptors. What comes after the head is bounded where it is read.
"""

import asyncio
import logging
import resource
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, cast

from aiohttp import web

from gateway.access.identity import network_of
from gateway.config.server import Shares
from gateway.transports.guard import is_loopback_address
from gateway.transports.incoming import SERVER, refuse
from gateway.transports.ration import Ration
from gateway.transports.refusal import Refusal

QUIET: Final = logging.getLogger("gateway.http")
"""aiohttp logs each malformed request with a traceback; our own mistakes are logged before they get there."""

_BAD_REQUEST: Final = 400
_LONGEST_LINE: Final = 8190
"""Bytes of the request line, and of a field."""
_MOST_FIELDS: Final = 128
_NO_HEAD: Final = (
    f"This is no head of an HTTP request, or it is too large: {_LONGEST_LINE} bytes for a line, {_MOST_FIELDS} fields"
)
_LINGER_SECONDS: Final = 10.0
"""After an answer, for the rest of a body that nobody reads: who still sends might not see the answer otherwise."""
_END_OF_HEAD: Final = b"\r\n\r\n"
_SHARE_OF_DESCRIPTORS: Final = 0.75
"""The others are for children, files and connections to elsewhere."""
_MOST: Final = 65_536


def connection_ration(shares: Shares, *, has_proxies: bool = False) -> Ration:
    """What `limits.connections` says, else most of the descriptors that the process may have.

    Where proxies are named, connections are theirs and nobody's share: who calls through them is told by headers.
    """
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST if descriptors == resource.RLIM_INFINITY else min(_MOST, int(descriptors * _SHARE_OF_DESCRIPTORS))
    if has_proxies and shares.per_caller is None:
        shares = Shares(per_caller=shares.in_all or most, in_all=shares.in_all)
    return Ration(shares, noun="connections", default=most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """How many connections a listener takes, and how long it waits for what they say."""

    ration: Ration = field(default_factory=lambda: connection_ration(Shares()))
    handshake_seconds: float = 10.0
    """To agree on TLS."""
    head_seconds: float = 30.0
    """From a connection's beginning to the end of its first request's head, and from the first byte of a later one."""
    idle_seconds: float = 660.0
    """From an answer to the next whole head. Proxies keep connections for up to 600: who lets go first loses none."""

    def caller_behind(self, peer: object) -> str:
        """Whose share it is. Nobody's, unless the file says so, for who is on this machine: it may well be a proxy."""
        address = str(peer[0]) if isinstance(peer, tuple) else ""
        if self.ration.is_share_unsaid and is_loopback_address(address):
            return ""
        return network_of(address)


class HttpConnection(web.RequestHandler):
    """aiohttp's protocol, with a door in front."""

    __slots__ = ("_caller", "_deadline", "_has_spoken", "_is_idle", "_threshold", "has_begun")

    def __init__(self, server: web.Server, threshold: Threshold, *, counted_for: str | None = None) -> None:
        """Do nothing yet; `counted_for` is the caller of whose share it was taken already."""
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=threshold.idle_seconds,
            lingering_time=min(_LINGER_SECONDS, threshold.head_seconds),
            access_log=cast("logging.Logger", None),  # as its own runner does: none
            logger=QUIET,
            auto_decompress=False,
            max_line_size=_LONGEST_LINE,
            max_field_size=_LONGEST_LINE,
            max_headers=_MOST_FIELDS,
        )
        self._threshold: Final = threshold
        self._caller = counted_for
        self.has_begun = False
        self._deadline: asyncio.TimerHandle | None = None
        self._has_spoken = False
        """Whether there is a part of a head."""
        self._is_idle = True
        """Whether the next byte begins a head: not while a request is served, nor while the rest of its body comes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.has_begun = True
        if self._caller is None:
            caller = self._threshold.caller_behind(transport.get_extra_info("peername"))
            refusal = self._threshold.ration.refusal_of(caller)
            if refusal is not None:
                self._turn_away(refusal)
                return
            self._threshold.ration.take(caller)
            self._caller = caller
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        if self._is_idle and not data.isspace():  # RFC 9112 §2.2: empty lines before a request are ignored
            self._has_spoken = True
            if self._deadline is None and _END_OF_HEAD not in data:  # most heads come whole
                self._wait_for_head()
        super().data_received(data)

    def request_begun(self) -> None:
        """A whole head has come, or what can be none."""
        self._stop_waiting()
        self._has_spoken = self._is_idle = False

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_waiting()
        if self._caller is not None:
            self._threshold.ration.give_back(self._caller)
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
        super().handle_error(request, status, exc, message)
        said = _NO_HEAD if status == _BAD_REQUEST else "Internal error"
        response = refuse(Refusal(status=status, message=said), headers=SERVER)
        response.force_close()
        return response

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer; those that the router gives by itself are to look like ours."""
        if isinstance(resp, web.HTTPException):
            resp.headers.update(SERVER)
        sent = await super().finish_response(request, resp, start_time)
        request.content.on_eof(self._rest)
        return sent

    def _rest(self) -> None:
        self._is_idle = True

    def _wait_for_head(self) -> None:
        self._deadline = asyncio.get_running_loop().call_later(self._threshold.head_seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if not self._has_spoken:
            self.force_close()
            return
        message = f"The head did not arrive within {self._threshold.head_seconds:g} seconds (listen.receive_timeout)"
        self._turn_away(Refusal(status=408, message=message))

    def _turn_away(self, refusal: Refusal) -> None:
        """Say why in as few bytes as can be, and close."""
        if self.transport is not None:
            self.transport.write(_response(refusal))
        self.force_close()


def _response(refusal: Refusal) -> bytes:
    """The same without aiohttp, which has no request here that it could answer."""
    answer = refuse(refusal, headers={**SERVER, "Connection": "close"})
    body = answer.body if isinstance(answer.body, bytes) else b""
    fields = {**answer.headers, "Content-Length": str(len(body))}
    lines = [f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}", *map(": ".join, fields.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body
