"""Opens and closes the listening sockets of an HTTP application, with or without TLS."""

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

import msgspec
import structlog
from aiohttp import StreamReader, hdrs, web
from aiohttp.http import RawRequestMessage

from gateway.config.models.address import Address
from gateway.errors import ConfigError, Problem
from gateway.transports.listener.http_connection import AIOHTTP_LOG, ConnectionLimits, HttpConnection
from gateway.transports.listener.server_tls import ServerTls

log: Final = structlog.get_logger(__name__)

_SHUTDOWN_GRACE_SECONDS: Final = 2.0
"""The time for connections to end after their requests are cancelled."""
_BACKLOG: Final = 4096
"""The maximum number of connections that wait in the kernel to be accepted, for example during a restart."""


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ListenAddress(msgspec.Struct, frozen=True, kw_only=True):
    """An address to listen on, or inherited sockets (systemd.socket(5))."""

    address: Address
    source: str = "listen.http"
    """The flag, key or variable that sets the address, for error messages."""
    sockets: Sequence[socket.socket] = ()


class HttpListener:
    def __init__(
        self,
        application: web.Application,
        where: ListenAddress,
        *,
        connection_limits: ConnectionLimits,
        tls: ServerTls | None = None,
        direct: Mapping[str, Handler] = MappingProxyType({}),
    ) -> None:
        """`direct` maps frequently requested paths to handlers that are called without aiohttp's slower router."""
        AIOHTTP_LOG.setLevel(logging.CRITICAL)
        self._runner: Final = web.AppRunner(application)
        self._server: web.Server | None = None
        self._where: Final = where
        self._direct: Final = direct
        self._connection_limits: Final = connection_limits
        self._tls: Final = tls
        self.address = where.address
        """The address to listen on. After `start`, the actual port replaces port 0."""
        self._servers: Final[list[asyncio.Server]] = []
        self._handshakes: Final[set[asyncio.Task[None]]] = set()

    async def start(self) -> None:
        """Start accepting connections.

        Raises:
            ConfigError: The address is in use or unavailable.
        """
        await self._runner.setup()
        router = self._runner.server
        assert router is not None  # noqa: S101 - set by `setup`
        server = self._server = web.Server(
            partial(_handle, self._direct, router.request_handler),
            request_factory=partial(_make_request, router.request_factory),
            handler_cancellation=True,  # 2026-07-28: closing the connection cancels the request.
        )
        try:
            for place in self._where.sockets or (None,):
                self._servers.append(await self._serve(server, place))
        except OSError as error:
            await self.close()
            raise ConfigError([Problem(message=reason_of(error, self.address), path=self._where.source)]) from error
        if not self._where.sockets:
            # Replace port 0 with the actual port.
            self.address = Address(self.address.host, self._servers[0].sockets[0].getsockname()[1])

    def stop_accepting(self) -> None:
        """Stop accepting connections. Open connections stay open."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def close(self) -> None:
        self.stop_accepting()
        for handshake in self._handshakes:
            handshake.cancel()
        await asyncio.gather(*self._handshakes, return_exceptions=True)
        if self._server is not None:
            await asyncio.sleep(0)  # Let accepted requests start before closing idle connections.
            self._server.pre_shutdown()
            try:
                # aiohttp waits twice: until handlers end, and again after cancelling them.
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


class TlsAcceptor(asyncio.Protocol):
    """Accepts TCP connections, and starts the TLS handshake if the quota allows another connection."""

    def __init__(
        self,
        tls: ServerTls,
        connection_limits: ConnectionLimits,
        *,
        connect: Callable[[str], HttpConnection],
        at_work: set["asyncio.Task[None]"],
    ) -> None:
        """`connect` creates a connection for a caller, after the quota has counted the connection."""
        self._tls: Final = tls
        self._connection_limits: Final = connection_limits
        self._connect: Final = connect
        self._at_work: Final = at_work

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        caller = self._connection_limits.caller_behind(transport.get_extra_info("peername"))
        # No error can be sent before the TLS handshake.
        if self._connection_limits.quota.refusal_of(caller) is None:
            self._begin(transport.get_extra_info("socket").fileno(), caller)
        # This closes the original descriptor. The duplicate keeps the connection open.
        cast("asyncio.Transport", transport).abort()

    def _begin(self, descriptor: int, caller: str) -> None:
        try:
            accepted = socket.socket(fileno=os.dup(descriptor))
        except OSError:  # No descriptors are left.
            return
        # `connect_accepted_socket` requires a non-blocking socket.
        accepted.settimeout(0)
        self._connection_limits.quota.acquire(caller)
        task = asyncio.get_running_loop().create_task(self._shake_hands(accepted, caller), name="TLS handshake")
        self._at_work.add(task)
        task.add_done_callback(self._at_work.discard)

    async def _shake_hands(self, accepted: socket.socket, caller: str) -> None:
        connection = self._connect(caller)
        try:
            with suppress(OSError):  # TLS errors, lost connections and timeouts.
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: connection,
                    accepted,
                    ssl=self._tls.context,
                    ssl_handshake_timeout=self._connection_limits.handshake_seconds,
                )
        finally:
            if not connection.has_begun:  # Otherwise the connection itself releases the quota.
                self._connection_limits.quota.release(caller)


def _handle(direct: Mapping[str, Handler], route: Handler, request: web.Request) -> Awaitable[web.StreamResponse]:
    handler = direct.get(request.rel_url.raw_path)
    # Send requests with `Expect: 100-continue` to the application, which handles the header.
    return route(request) if handler is None or hdrs.EXPECT in request.headers else handler(request)


def _make_request(
    make: Callable[..., web.BaseRequest],
    message: RawRequestMessage,
    body: StreamReader,
    protocol: web.RequestHandler,
    *rest: Any,
) -> web.BaseRequest:
    """Create a request, and notify the connection that the parser has read a request head."""
    if isinstance(protocol, HttpConnection):
        protocol.request_begun(chunked_body=body if message.chunked else None)
    if message.url.absolute:
        # aiohttp decodes the host, which can fail. `host_of` reads the host from `raw_path`.
        message = message._replace(url=message.url.relative())
    return make(message, body, protocol, *rest)


def reason_of(error: OSError, address: Address) -> str:
    if isinstance(error, socket.gaierror):
        return f"the name {address.host!r} cannot be resolved: {error.strerror}"
    if error.errno == errno.EADDRINUSE:
        return f"{address} is already in use. Choose another address in `listen` or with `--http HOST:PORT`"
    return f"cannot listen on {address}: {os.strerror(error.errno) if error.errno else error}"
