"""The transports that a daemon was asked to serve: HTTP, stdio, or both. Opens, reports and drains them."""

import asyncio
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import AsyncExitStack
from typing import Final

import structlog

from gateway.config.diagnostics.near_misses import did_you_mean
from gateway.config.models.address import Address
from gateway.config.settings import Settings, flag_of
from gateway.errors import ConfigError, Problem
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.exchange import Binding
from gateway.protocol.session import Session
from gateway.reload.candidate import Candidate
from gateway.reload.exposure import exposed
from gateway.telemetry.health import Health
from gateway.transports.http_server import HttpServer, ListenAddress
from gateway.transports.listener.socket_activation import ADMIN, Inherited, InheritedError, address_of, take_inherited
from gateway.transports.stdio.stdio import StandardStreams, Stdio

log: Final = structlog.get_logger()

_INHERITED: Final = "LISTEN_FDS"
_NOTICE_SHARE: Final = 0.25
"""The share of the time to drain for which connections are still accepted."""
_MAX_NOTICE_SECONDS: Final = 10.0
_HANDOVER_SECONDS: Final = 1.0
"""Time for the connections that are open when another process goes on with the sockets."""


def take_sockets() -> Inherited:
    """Take the sockets that the service manager hands over.

    Raises:
        ConfigError: one cannot be listened on.
    """
    try:
        return take_inherited(os.environ)
    except InheritedError as error:
        raise ConfigError([Problem(message=str(error), path="LISTEN_FDS")]) from error


def check_view(name: str | None, views: Collection[str]) -> None:
    """Refuse the name of a view that there is not.

    Raises:
        ConfigError: there is none of that name.
    """
    if name is not None and name not in views:
        message = f"there is no view `{name}`{did_you_mean(name, [*views])}"
        raise ConfigError([Problem(message=message, path=flag_of("view"))])


class Listeners:
    """The open transports of one daemon."""

    def __init__(  # noqa: PLR0913 - the parts that a daemon brings
        self,
        settings: Settings,
        served: Candidate,
        *,
        http: HttpServer | None,
        dispatcher: Dispatcher,
        health: Health,
        inherited: Inherited,
        leaves_sockets: Callable[[], bool],
        standard_streams: StandardStreams | None,
        on_input_end: Callable[[], None],
    ) -> None:
        """Open nothing yet. The sections `listen` and `limits` of `served` hold until the end."""
        self.http: Final = http
        """None where HTTP is not served."""
        self._settings: Final = settings
        self._served: Final = served
        self._dispatcher: Final = dispatcher
        self._health: Final = health
        self._inherited: Final = inherited
        self._leaves_sockets: Final = leaves_sockets
        self._standard_streams: Final = standard_streams
        self._on_input_end: Final = on_input_end
        self._stdio: Stdio | None = None

    async def open(self, stack: AsyncExitStack) -> None:
        """Begin to listen, until the stack closes.

        Raises:
            ConfigError: an address cannot be listened on, or must not be without authentication.
        """
        if self.http is not None:
            await _open_http(self.http, stack, settings=self._settings, served=self._served, inherited=self._inherited)
        if self._standard_streams is not None:
            check_view(self._settings.view, self._served.document.views)
            self._open_stdio(self._standard_streams, stack)

    def open_sessions(self) -> Iterator[tuple[Binding, Session]]:
        """The open sessions of the legacy era, each with its transport."""
        if self.http is not None:
            yield from self.http.open_sessions()
        if self._stdio is not None:
            yield from ((Binding.STDIO, session) for session in self._stdio.open_sessions)

    async def drain(self, seconds: float) -> None:
        """Begin nothing that lasts, let load balancers notice, and give the calls in flight this long to end."""
        notice = 0.0 if self.http is None else await self._stop_accepting(self.http, seconds)
        # Streams would last as long as their clients: they end, and clients come back to whoever serves next.
        self._dispatcher.notifier.close()
        async with asyncio.TaskGroup() as group:
            if self.http is not None:
                group.create_task(self.http.drain(seconds - notice))
            if self._stdio is not None:
                group.create_task(self._stdio.drain(seconds - notice))

    async def _stop_accepting(self, http: HttpServer, seconds: float) -> float:
        """Let load balancers notice, then accept no more connections; return the seconds that this took."""
        http.begin_draining()
        notice = self._notice(http, seconds)
        await asyncio.sleep(notice)
        http.stop_accepting()
        if self._leaves_sockets():
            # Connections that were taken just now, and those that are kept, are answered before they are closed: a
            # request that is on its way then is lost (RFC 9112 §9.5).
            notice = min(seconds, _HANDOVER_SECONDS)
            await asyncio.sleep(notice)
        return notice

    def _notice(self, http: HttpServer, seconds: float) -> float:
        """Seconds to accept connections for although `/-/ready` says no, so that a load balancer refuses nobody.

        None if nobody has asked for it; nor if another process holds the sockets, in which connections then wait.
        """
        if http.address is None or self._leaves_sockets() or not self._health.is_watched:
            return 0
        return min(seconds * _NOTICE_SHARE, _MAX_NOTICE_SECONDS)

    def _open_stdio(self, streams: StandardStreams, stack: AsyncExitStack) -> None:
        self._stdio = stdio = Stdio(
            dispatcher=self._dispatcher,
            streams=streams,
            max_line=self._served.document.listen.max_body,
            max_unread=self._served.document.limits.unread.per_caller,
            scopes=self._settings.scopes,
            view=self._settings.view,
        )
        task = asyncio.get_running_loop().create_task(self._serve_stdio(stdio), name="stdio")

        async def close() -> None:
            await stdio.close()
            await asyncio.wait([task])

        stack.push_async_callback(close)
        log.info("serving on standard input and output")

    async def _serve_stdio(self, stdio: Stdio) -> None:
        try:
            await stdio.serve()
        except Exception:  # Boundary: the owner of the task does not look at its result
            log.exception("stdio failed")
        finally:
            # However it ended: the client that has started the daemon is gone.
            self._on_input_end()


async def _open_http(
    server: HttpServer, stack: AsyncExitStack, *, settings: Settings, served: Candidate, inherited: Inherited
) -> None:
    """Begin to listen, until the stack closes.

    Raises:
        ConfigError: an address cannot be listened on, or must not be without authentication.
    """
    main, admin = _main_address(settings, served, inherited), _admin_address(served, inherited)
    # Both are checked before either is open.
    for where in filter(None, (admin, main)):
        _require_auth_or_loopback(where, settings, served)
    await server.open(stack, main, admin=admin)


def _main_address(settings: Settings, served: Candidate, inherited: Inherited) -> ListenAddress:
    # First of all: whoever handed sockets over has decided where to listen.
    if sockets := inherited.get("", ()):
        return ListenAddress(source=_INHERITED, address=address_of(sockets), sockets=sockets)
    if settings.http is not None:
        return ListenAddress(source=flag_of("http"), address=settings.http)
    return ListenAddress(source="listen.http", address=Address.parse(served.document.listen.http))


def _admin_address(served: Candidate, inherited: Inherited) -> ListenAddress | None:
    if sockets := inherited.get(ADMIN, ()):
        return ListenAddress(source=_INHERITED, address=address_of(sockets), sockets=sockets)
    admin = served.document.listen.admin
    return None if admin is None else ListenAddress(source="listen.admin", address=Address.parse(admin))


def _require_auth_or_loopback(where: ListenAddress, settings: Settings, served: Candidate) -> None:
    """Refuse an address beyond loopback: without authentication, everybody who reaches it may run the tools."""
    if served.document.auth is not None or where.address.is_loopback:
        return
    if not settings.allow_anonymous:
        problem = served.exposures.get(where.source)
        raise ConfigError([problem or Problem(message=exposed(where.address), path=where.source)])
    log.warning("anybody who reaches this address is served", address=str(where.address))
