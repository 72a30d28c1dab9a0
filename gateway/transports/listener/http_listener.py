"""The sockets in front of an HTTP application: opens them, says where they are, stops accepting, closes."""

import asyncio
import errno
import logging
import socket
from collections.abc import Sequence
from typing import Any, Final

import structlog
from aiohttp import StreamReader, web
from aiohttp.http import RawRequestMessage

from gateway.config.address import Address
from gateway.transports.listener.http_connection import QUIET, HttpConnection, Threshold
from gateway.transports.listener.server_tls import ServerTls
from gateway.transports.listener.tls_door import TlsDoor

log: Final = structlog.get_logger()

_FAREWELL_SECONDS: Final = 2.0
"""How long connections may take to end once what they served was cancelled."""
_BACKLOG: Final = 4096
"""Connections that the kernel may hold for us, such as those that arrive while another process takes over."""


class ListenError(Exception):
    """The address cannot be listened on; the text says why."""


class HttpListener:
    """One address, or the sockets that another process opened for us."""

    def __init__(
        self,
        application: web.Application,
        *,
        address: Address,
        inherited: Sequence[socket.socket] = (),
        tls: ServerTls | None = None,
        threshold: Threshold | None = None,
    ) -> None:
        """Do nothing yet; `inherited` sockets are known by `address`, and closed at the end."""
        QUIET.setLevel(logging.CRITICAL)
        self._runner: Final = web.AppRunner(
            application,
            handler_cancellation=True,  # 2026-07-28: closing the connection cancels
            shutdown_timeout=_FAREWELL_SECONDS,
        )
        self._threshold: Final = threshold or Threshold()
        self.address = address
        """Where it listens; once it does, with the port that it got."""
        self._inherited: Final = tuple(inherited)
        self._tls: Final = tls
        self._servers: Final[list[asyncio.Server]] = []
        self._handshakes: Final[set[asyncio.Task[None]]] = set()

    async def start(self) -> None:
        """Begin to accept.

        Raises:
            ListenError: the address is taken, or is not this machine's.
        """
        await self._runner.setup()
        self._hear_of_requests()
        try:
            for place in self._inherited or (None,):
                self._servers.append(await self._serve(place))
        except OSError as error:
            await self.close()
            raise ListenError(_reason(error, self.address)) from error
        if not self._inherited:
            self.address = Address(self.address.host, self._servers[0].sockets[0].getsockname()[1])

    def stop_accepting(self) -> None:
        """Leave new connections to whoever else listens, or to nobody; those that are open stay."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def close(self) -> None:
        """Close what is left, whether or not it ends by itself."""
        self.stop_accepting()
        for handshake in self._handshakes:
            handshake.cancel()
        await asyncio.gather(*self._handshakes, return_exceptions=True)
        try:
            async with asyncio.timeout(2 * _FAREWELL_SECONDS + 1):
                await self._runner.cleanup()
        except TimeoutError:
            log.warning("connections did not close")

    def _hear_of_requests(self) -> None:
        """Have each connection told when it has read a head: only the parser knows that."""
        server = self._runner.server
        assert server is not None  # noqa: S101 - there is one after `setup`
        make = server.request_factory

        def begun(
            message: RawRequestMessage, body: StreamReader, protocol: web.RequestHandler, *rest: Any
        ) -> web.BaseRequest:
            if isinstance(protocol, HttpConnection):
                protocol.request_begun()
            return make(message, body, protocol, *rest)

        server.request_factory = begun

    async def _serve(self, inherited: socket.socket | None) -> asyncio.Server:
        loop, server = asyncio.get_running_loop(), self._runner.server
        assert server is not None  # noqa: S101 - there is one after `setup`

        def connection(caller: str | None = None) -> HttpConnection:
            return HttpConnection(server, self._threshold, counted_for=caller)

        def protocol() -> asyncio.Protocol:
            if self._tls is None:
                return connection()
            return TlsDoor(self._tls, self._threshold, connect=connection, at_work=self._handshakes)

        if inherited is None:
            return await loop.create_server(protocol, self.address.host, self.address.port, backlog=_BACKLOG)
        if inherited.family is socket.AF_UNIX:
            return await loop.create_unix_server(protocol, sock=inherited, backlog=_BACKLOG)
        return await loop.create_server(protocol, sock=inherited, backlog=_BACKLOG)


def _reason(error: OSError, address: Address) -> str:
    if isinstance(error, socket.gaierror):
        return f"the name {address.host!r} cannot be resolved: {error.strerror}"
    match error.errno:
        case errno.EADDRINUSE:
            return f"{address} is in use already; port 0 takes a free one"
        case errno.EADDRNOTAVAIL:
            return f"{address.host} is not an address of this machine"
        case errno.EACCES:
            return f"ports below 1024 need a privilege that this process lacks: {address}"
        case _:
            return f"cannot listen on {address}: {error.strerror or error}"
