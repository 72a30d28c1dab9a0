"""Where HTTP is served: the main listener, and one for the daemon's own paths if the file wants it."""

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from socket import socket
from typing import Final

import structlog
from aiohttp import web

from gateway.app.listening.exposure import exposed
from gateway.app.listening.own_urls import own_urls
from gateway.app.listening.premises import Premises
from gateway.config.address import Address
from gateway.config.server import Shares
from gateway.config.settings import flag_of
from gateway.errors import ConfigError, Problem
from gateway.transports.front_door import FrontDoor
from gateway.transports.guard import Guard
from gateway.transports.http_app import HttpApp
from gateway.transports.http_sse import SSE_PATH, HttpSse
from gateway.transports.listener.http_connection import Threshold, connection_ration
from gateway.transports.listener.http_listener import HttpListener, ListenError
from gateway.transports.listener.inherited_sockets import ADMIN, address_of, unix_paths
from gateway.transports.listener.server_tls import ServerTls
from gateway.transports.ration import Ration
from gateway.transports.resource_metadata import ResourceMetadata
from gateway.transports.streamable_http.streamable_http import StreamableHttp
from gateway.transports.trusted_proxies import TrustedProxies

log: Final = structlog.get_logger()

_INHERITED: Final = "LISTEN_FDS"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where to listen."""

    source: str
    """Who said so: a flag, a key or a variable."""
    address: Address
    sockets: Sequence[socket] = ()


class HttpFront:
    """Opens the listeners, and says of them what others want to know."""

    def __init__(
        self, premises: Premises, *, mcp: StreamableHttp, sse: HttpSse | None, is_leaving: Callable[[], bool]
    ) -> None:
        self._premises: Final = premises
        self._mcp: Final = mcp
        self._sse: Final = sse
        self._is_leaving: Final = is_leaving
        document = premises.document
        listen = document.listen
        self._proxies: Final = TrustedProxies(listen.trusted_proxies, public_url=listen.public_url)
        self._metadata: Final = ResourceMetadata(
            authenticator=premises.authenticator, path=listen.path, others=() if sse is None else (SSE_PATH,)
        )
        self.is_reachable = listen.public_url is not None
        """Whether anybody beyond this machine can reach it."""
        self._main: HttpListener | None = None
        has_proxies = bool(listen.trusted_proxies)
        self.connections: Final = connection_ration(document.limits.connections, has_proxies=has_proxies)
        """Those of the main listener."""

    async def open(self, stack: AsyncExitStack) -> None:
        """Begin to accept; what is opened closes with the stack.

        Raises:
            ConfigError: an address cannot be listened on, or must not be without authentication.
        """
        place, admin = self._main_place(), self._admin_place()
        app = HttpApp(
            door=self._door(place),
            mcp=self._mcp,
            sse=self._sse,
            path=self._premises.document.listen.path,
            own=self._premises.own if admin is None else None,
            prefix=self._proxies.prefix,
        )
        if admin is not None:
            tls = None if admin.address.is_loopback else self._premises.tls
            application = self._premises.own.application(self._door(admin), is_private=not admin.address.is_loopback)
            listener = await self._open(admin, application, tls, connection_ration(Shares()), stack)
            url = f"{_scheme(tls)}://{_authority(listener.address)}/-/status"
            log.info("listening for operators", url=url, **_unix_sockets(admin))
        self._main = await self._open(place, app.application(), self._premises.tls, self.connections, stack)
        self._premises.authenticator.answer_to(own_urls(self._premises.document.listen, self._main.address))
        log.info("listening", url=self.url, **_unix_sockets(place))

    @property
    def address(self) -> Address | None:
        return None if self._main is None else self._main.address

    @property
    def url(self) -> str:
        """The MCP endpoint, as this machine reaches it."""
        authority = "" if self.address is None else _authority(self.address)
        return f"{_scheme(self._premises.tls)}://{authority}{self._premises.document.listen.path}"

    @property
    def outlives_us(self) -> bool:
        """Whether somebody else holds the main listener's sockets open: connections wait there for the next daemon."""
        return bool(self._premises.inherited.get(""))

    def stop_accepting(self) -> None:
        """Take no new connections but those of operators."""
        if self._main is not None:
            self._main.stop_accepting()

    async def _open(
        self,
        place: _Place,
        application: web.Application,
        tls: ServerTls | None,
        connections: Ration,
        stack: AsyncExitStack,
    ) -> HttpListener:
        self._refuse_strangers(place)
        listen = self._premises.document.listen
        listener = HttpListener(
            application,
            address=place.address,
            inherited=place.sockets,
            tls=tls,
            threshold=Threshold(
                ration=connections,
                head_seconds=listen.receive_timeout.total_seconds(),
                idle_seconds=listen.idle_timeout.total_seconds(),
            ),
        )
        try:
            await listener.start()
        except ListenError as error:
            raise ConfigError([Problem(message=str(error), path=place.source)]) from error
        stack.push_async_callback(listener.close)
        self.is_reachable |= not place.address.is_loopback
        return listener

    def _door(self, place: _Place) -> FrontDoor:
        listen = self._premises.document.listen
        guard = Guard(
            address=place.address,
            public_url=listen.public_url,
            allowed_hosts=listen.allowed_hosts,
            allowed_origins=listen.allowed_origins,
        )
        return FrontDoor(
            guard=guard,
            proxies=self._proxies,
            authenticator=self._premises.authenticator,
            metadata=self._metadata,
            is_leaving=self._is_leaving,
            mask=self._premises.mask,
        )

    def _main_place(self) -> _Place:
        sockets = self._premises.inherited.get("", ())
        if sockets:
            return _Place(source=_INHERITED, address=address_of(sockets), sockets=sockets)
        if self._premises.settings.http is not None:
            return _Place(source=flag_of("http"), address=self._premises.settings.http)
        return _Place(source="listen.http", address=Address.parse(self._premises.document.listen.http))

    def _admin_place(self) -> _Place | None:
        sockets = self._premises.inherited.get(ADMIN, ())
        if sockets:
            return _Place(source=_INHERITED, address=address_of(sockets), sockets=sockets)
        admin = self._premises.document.listen.admin
        return None if admin is None else _Place(source="listen.admin", address=Address.parse(admin))

    def _refuse_strangers(self, place: _Place) -> None:
        """Without authentication, whoever reaches the port may run the tools: loopback alone, unless told otherwise."""
        if self._premises.document.auth is not None or place.address.is_loopback:
            return
        if not self._premises.settings.allow_anonymous:
            written = self._premises.exposures.get(place.source)
            raise ConfigError([written or Problem(message=exposed(place.address), path=place.source)])
        log.warning("anybody who reaches this address is served", address=str(place.address))


def _scheme(tls: ServerTls | None) -> str:
    return "http" if tls is None else "https"


def _authority(address: Address) -> str:
    """Of a URL. What was handed over may be Unix sockets alone, which have no port."""
    return str(address) if address.port else address.host


def _unix_sockets(place: _Place) -> dict[str, list[str]]:
    paths = unix_paths(place.sockets)
    return {"sockets": paths} if paths else {}
