"""Opens the sockets in front of an HTTP application, says where they are, stops accepting, and closes them."""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Final, cast

import structlog
from aiohttp import StreamReader, hdrs, web
from aiohttp.http import RawRequestMessage

from gateway.config.models.address import Address
from gateway.transports.listener.http_connection import IDLE, ConnectionLimits, HttpConnection
from gateway.transports.listener.server_tls import ServerTls


class TlsAcceptor(asyncio.Protocol):
    """Takes a connection as it is accepted, and opens it anew with TLS once it is counted. Nothing is read here."""

    def __init__(
        self,
        tls: ServerTls,
        connection_limits: ConnectionLimits,
        *,
        connect: Callable[[str], HttpConnection],
        at_work: set["asyncio.Task[None]"],
    ) -> None:
        """Do nothing yet; `connect` makes the connection of a caller who is counted already."""
        self._tls: Final = tls
        self._connection_limits: Final = connection_limits
        self._connect: Final = connect
        self._at_work: Final = at_work

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        caller = self._connection_limits.caller_behind(transport.get_extra_info("peername"))
        # Who is refused cannot be told why: there is no TLS yet.
        if self._connection_limits.quota.refusal_of(caller) is None:
            self._begin(transport.get_extra_info("socket").fileno(), caller)
        # This closes one descriptor; the duplicate, where there is one, keeps the connection.
        cast("asyncio.Transport", transport).abort()

    def _begin(self, descriptor: int, caller: str) -> None:
        try:
            accepted = socket.socket(fileno=os.dup(descriptor))
        except OSError:  # no descriptor is left
            return
        # `connect_accepted_socket` takes none that blocks.
        accepted.settimeout(0)
        self._connection_limits.quota.acquire(caller)
        task = asyncio.get_running_loop().create_task(self._shake_hands(accepted, caller), name="TLS handshake")
        self._at_work.add(task)
        task.add_done_callback(self._at_work.discard)

    async def _shake_hands(self, accepted: socket.socket, caller: str) -> None:
        connection = self._connect(caller)
        try:
            with suppress(OSError):  # TLS errors, lost connections and the deadline: all are the client's affair
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: connection,
                    accepted,
                    ssl=self._tls.context,
                    ssl_handshake_timeout=self._connection_limits.handshake_seconds,
                )
        finally:
            if not connection.has_begun:  # which gives it back itself
                self._connection_limits.quota.release(caller)


log: Final = structlog.get_logger()

_SHUTDOWN_GRACE_SECONDS: Final = 2.0
"""How long connections may take to end once what they served was cancelled."""
_BACKLOG: Final = 4096
"""Connections that the kernel may hold for us, such as those that arrive while another process takes over."""


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ListenError(Exception):
    """The address cannot be listened on; the text says why."""


class HttpListener:
    """One address, or the sockets that another process opened for us."""

    def __init__(  # noqa: PLR0913 - one setting each
        self,
        application: web.Application,
        *,
        address: Address,
        direct: Mapping[str, Handler] = MappingProxyType({}),
        inherited: Sequence[socket.socket] = (),
        tls: ServerTls | None = None,
        connection_limits: ConnectionLimits | None = None,
    ) -> None:
        """Do nothing yet.

        Args:
            application: answers requests.
            address: where to listen.
            direct: handlers of the paths that are requested most. The application's router is slower.
            inherited: sockets to listen on instead; known by `address`, and closed at the end.
            tls: the certificate, if there is one.
            connection_limits: how many connections are taken, and how long they may be silent.
        """
        IDLE.setLevel(logging.CRITICAL)
        self._runner: Final = web.AppRunner(application)
        self._server: web.Server | None = None
        self._direct: Final = direct
        self._connection_limits: Final = connection_limits or ConnectionLimits()
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
        router = self._runner.server
        assert router is not None  # noqa: S101 - there is one after `setup`
        server = self._server = web.Server(
            partial(_handle, self._direct, router.request_handler),
            request_factory=partial(_make_request, router.request_factory),
            handler_cancellation=True,  # 2026-07-28: closing the connection cancels
        )
        try:
            for place in self._inherited or (None,):
                self._servers.append(await self._serve(server, place))
        except OSError as error:
            await self.close()
            raise ListenError(reason_of(error, self.address)) from error
        if not self._inherited:
            # Port 0 has become one that was free.
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
        if self._server is not None:
            await asyncio.sleep(0)  # requests that were accepted start before idle connections are closed
            self._server.pre_shutdown()
            try:
                # aiohttp waits twice: until handlers end, and again after it has cancelled them.
                async with asyncio.timeout(2 * _SHUTDOWN_GRACE_SECONDS + 1):
                    await self._server.shutdown(_SHUTDOWN_GRACE_SECONDS)
            except TimeoutError:
                log.warning("connections did not close")
        await self._runner.cleanup()

    async def _serve(self, server: web.Server, inherited: socket.socket | None) -> asyncio.Server:
        loop = asyncio.get_running_loop()

        def connection(caller: str | None = None) -> HttpConnection:
            return HttpConnection(server, self._connection_limits, counted_for=caller)

        def protocol() -> asyncio.Protocol:
            if self._tls is None:
                return connection()
            return TlsAcceptor(self._tls, self._connection_limits, connect=connection, at_work=self._handshakes)

        if inherited is None:
            return await loop.create_server(protocol, self.address.host, self.address.port, backlog=_BACKLOG)
        if inherited.family is socket.AF_UNIX:
            return await loop.create_unix_server(protocol, sock=inherited, backlog=_BACKLOG)
        return await loop.create_server(protocol, sock=inherited, backlog=_BACKLOG)


def _handle(direct: Mapping[str, Handler], route: Handler, request: web.Request) -> Awaitable[web.StreamResponse]:
    handler = direct.get(request.rel_url.raw_path)
    # The application also answers `Expect: 100-continue`.
    return route(request) if handler is None or hdrs.EXPECT in request.headers else handler(request)


def _make_request(
    make: Callable[..., web.BaseRequest],
    message: RawRequestMessage,
    body: StreamReader,
    protocol: web.RequestHandler,
    *rest: Any,
) -> web.BaseRequest:
    """Make a request, and tell its connection that a head was read: only the parser knows that."""
    if isinstance(protocol, HttpConnection):
        protocol.request_begun(chunked_body=body if message.chunked else None)
    if message.url.absolute:
        # aiohttp decodes the host, which fails for some. `host_of` reads the host in `raw_path`.
        message = message._replace(url=message.url.relative())
    return make(message, body, protocol, *rest)


def reason_of(error: OSError, address: Address) -> str:
    """Say why an address cannot be listened on."""
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
