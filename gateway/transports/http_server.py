"""The HTTP server: Streamable HTTP, HTTP+SSE and the admin API with their listeners."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import Final, Self

import msgspec
import structlog
from aiohttp import web
from msgspec.structs import replace
from yarl import URL

from gateway.access.authenticator import Authenticator
from gateway.config.models.address import Address
from gateway.config.models.server import Limits, Listen
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.exchange import Binding
from gateway.protocol.session import Session
from gateway.transports.http.active_requests import ActiveRequests, Renewed
from gateway.transports.http.admin_api import AdminApi, BrowserPages, json_response, only_admin
from gateway.transports.http.forwarded import TrustedProxies
from gateway.transports.http.host_and_origin import Guard
from gateway.transports.http.middleware import Handler, Middleware
from gateway.transports.http.request import Endpoint, HttpRequest
from gateway.transports.http.resource_metadata import VIEW, ResourceMetadata
from gateway.transports.http.server_card import ServerCards
from gateway.transports.http.welcome_page import wants_page, welcome_page
from gateway.transports.http_sse import MESSAGES_PATH, SSE_PATH, HttpSse
from gateway.transports.listener.http_connection import ConnectionLimits
from gateway.transports.listener.http_listener import HttpListener, ListenAddress
from gateway.transports.listener.server_tls import ServerTls
from gateway.transports.listener.socket_activation import unix_paths
from gateway.transports.quota import RequestLimits, ResourceQuota, WriteQuota, admin_connection_quota, connection_quota
from gateway.transports.sse.session_streams import ReplayBounds
from gateway.transports.streamable_http.endpoint import StreamableHttp
from gateway.transports.streamable_http.sessions import SessionPersistence, Sessions

log: Final = structlog.get_logger(__name__)

_MAX_COUNT: Final = 10_000
"""The default maximum number of sessions, and of streams."""
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    sessions: ResourceQuota
    streams: ResourceQuota
    requests: RequestLimits
    connections: ConnectionLimits
    session_ttl: timedelta
    replay: ReplayBounds

    @classmethod
    def of(cls, listen: Listen, limits: Limits) -> Self:
        return cls(
            sessions=ResourceQuota(
                limits.sessions,
                noun="sessions",
                default=_MAX_COUNT,
                is_configured="sessions" in limits.model_fields_set,
            ),
            streams=ResourceQuota(
                limits.streams, noun="streams", default=_MAX_COUNT, is_configured="streams" in limits.model_fields_set
            ),
            requests=RequestLimits(
                max_body=listen.max_body,
                keepalive=listen.keepalive.total_seconds(),
                quota=WriteQuota(limits.unread),
                receive_seconds=listen.receive_timeout.total_seconds(),
            ),
            connections=ConnectionLimits(
                quota=connection_quota(limits.connections, has_proxies=bool(listen.trusted_proxies)),
                head_seconds=listen.receive_timeout.total_seconds(),
                idle_seconds=listen.idle_timeout.total_seconds(),
            ),
            session_ttl=listen.session_ttl,
            replay=ReplayBounds(),
        )


class HttpServer:
    def __init__(  # noqa: PLR0913 - the parts that a daemon brings
        self,
        listen: Listen,
        limits: ServerLimits,
        *,
        dispatcher: Dispatcher,
        authenticator: Authenticator,
        tls: ServerTls | None = None,
        is_draining: Callable[[], bool] = lambda: False,
        mask: Callable[[str], str] = str,
        persistence: SessionPersistence,
        pages: BrowserPages | None = None,
    ) -> None:
        """Create the server. `mask` removes secrets from error messages."""
        self._listen: Final = listen
        self._dispatcher: Final = dispatcher
        self._authenticator: Final = authenticator
        self._tls: Final = tls
        self._is_draining: Final = is_draining
        self._mask: Final = mask
        self._pages: Final = pages
        self._proxies: Final = TrustedProxies(listen.trusted_proxies, public_url=listen.public_url)
        self._metadata: Final = ResourceMetadata(
            authenticator=authenticator,
            path=listen.path,
            find_view=dispatcher.views.view,
            others=(SSE_PATH,) if listen.sse else (),
        )
        self._main: HttpListener | None = None
        self._admin_url: str | None = None
        self.limits: Final = limits
        self.sessions: Final = Sessions(
            dispatcher=dispatcher,
            quota=limits.sessions,
            ttl=limits.session_ttl,
            replay=limits.replay,
            persistence=persistence,
        )
        if persistence.replica is not None:
            limits.sessions.share(persistence.replica.semaphores)
            limits.streams.share(persistence.replica.semaphores)
        self.active_requests: Final = ActiveRequests(end_subscription=dispatcher.notifier.end_subscription)
        self.streamable_http: Final = StreamableHttp(
            dispatcher=dispatcher,
            sessions=self.sessions,
            streams=limits.streams,
            active_requests=self.active_requests,
            limits=limits.requests,
        )
        self.http_sse: Final = (
            HttpSse(
                dispatcher=dispatcher,
                streams=limits.streams,
                active_requests=self.active_requests,
                limits=limits.requests,
                replica=persistence.replica,
            )
            if listen.sse
            else None
        )

    async def open(
        self, stack: AsyncExitStack, main: ListenAddress, *, admin_api: AdminApi, admin: ListenAddress | None = None
    ) -> None:
        """Accept connections until `stack` closes. Without `admin`, the main listener serves the admin API.

        Raises:
            ConfigError: Cannot listen on an address.
        """
        if admin is not None:
            await self._open_admin(stack, admin, admin_api)
        middleware = self._middleware(main)
        application = self._application(middleware, admin_api if admin is None else None)
        # Requests to the MCP endpoint bypass aiohttp's router, which is slower.
        handler = middleware.authenticated(self.streamable_http.handle)
        direct = {
            URL.build(path=path).raw_path: handler
            for path in (self._listen.path, self._proxies.prefix + self._listen.path)
        }
        listener = HttpListener(
            application, main, connection_limits=self.limits.connections, tls=self._tls, direct=direct
        )
        await listener.start()
        stack.push_async_callback(listener.close)
        # Port 0 has been replaced by the actual port.
        self._main = listener
        self._authenticator.set_audiences(token_audiences(self._listen, self._main.address))
        if self._pages is not None:
            self._pages.listen_at(next(_bases(self._listen, self._main.address)))
        # Enter the sessions last, so that they close first and cancelled calls respond before connections close.
        await stack.enter_async_context(self.sessions)
        log.info("listening", url=self.url, **_unix_sockets(main))

    @property
    def address(self) -> Address | None:
        """The address of the main listener, or None until the listener is open."""
        return None if self._main is None else self._main.address

    @property
    def url(self) -> str | None:
        """The URL of the MCP endpoint on this machine, or None until the main listener is open."""
        if self._main is None:
            return None
        return f"{_scheme(self._tls)}://{_authority(self._main.address)}{self._listen.path}"

    @property
    def admin_url(self) -> str | None:
        """The base URL of the admin API on this machine, or None until the API's listener is open."""
        if self._main is None or self._admin_url is not None:
            return self._admin_url
        return f"{_scheme(self._tls)}://{_authority(self._main.address)}"

    @property
    def quotas(self) -> Mapping[str, ResourceQuota | WriteQuota]:
        return {
            "sessions": self.limits.sessions,
            "streams": self.limits.streams,
            "unread": self.limits.requests.quota,
            "connections": self.limits.connections.quota,
        }

    def open_sessions(self) -> Iterator[tuple[Binding, Session]]:
        """Yield each open legacy session together with its transport."""
        yield from ((Binding.STREAMABLE_HTTP, session) for session in self.sessions.open_sessions)
        if self.http_sse is not None:
            yield from ((Binding.HTTP_SSE, session) for session in self.http_sse.open_sessions)

    async def end_session(self, session: Session) -> bool:
        """End a legacy session. Return False if this server does not serve the session."""
        if self.sessions.served_here(session.id) is not None:
            await self.sessions.delete(session.id)
            return True
        return self.http_sse is not None and self.http_sse.end(session)

    def revalidate(self, renewed: Renewed) -> None:
        """End the sessions, streams and calls of callers whose credential is no longer valid."""
        admits = self._dispatcher.views.admits
        self.sessions.revalidate(renewed, admits=admits, identified=self._dispatcher.notifier.identity_changed)
        self.active_requests.revalidate(renewed, admits=admits)

    def begin_draining(self) -> None:
        self.streamable_http.begin_draining()
        if self.http_sse is not None:
            self.http_sse.begin_draining()

    def stop_accepting(self) -> None:
        """Stop accepting connections on the main listener. The admin listener stays open."""
        if self._main is not None:
            self._main.stop_accepting()

    async def drain(self, seconds: float) -> None:
        """Wait up to `seconds` for running calls, then cancel them."""
        # Drain both transports concurrently, so that they share the time limit.
        async with asyncio.TaskGroup() as group:
            group.create_task(self.streamable_http.drain(seconds))
            if self.http_sse is not None:
                group.create_task(self.http_sse.drain(seconds))

    async def _open_admin(self, stack: AsyncExitStack, admin: ListenAddress, admin_api: AdminApi) -> None:
        # Loopback needs no encryption, and the certificate is for a different host name.
        tls = None if admin.address.is_loopback else self._tls
        application, middleware = web.Application(), self._middleware(admin)
        router, prefixes = application.router, ("", self._proxies.prefix)
        is_private = not admin.address.is_loopback
        admin_api.mount(router, middleware, is_main=False, is_private=is_private, prefixes=prefixes)
        if self._pages is not None:
            self._pages.mount(router, middleware, prefixes=prefixes, is_main=False)
        router.add_route("*", "/{path:.*}", middleware.checked(only_admin))
        # A separate quota, so that a flood on the main listener cannot lock operators out.
        limits = replace(self.limits.connections, quota=admin_connection_quota())
        listener = HttpListener(application, admin, connection_limits=limits, tls=tls)
        await listener.start()
        stack.push_async_callback(listener.close)
        self._admin_url = f"{_scheme(tls)}://{_authority(listener.address)}"
        log.info("listening for operators", url=f"{self._admin_url}/-/status", **_unix_sockets(admin))

    def _application(self, middleware: Middleware, admin_api: AdminApi | None) -> web.Application:
        """Return the application of the main listener. `admin_api` is None if the admin API has a separate listener."""
        application, prefix = web.Application(), self._proxies.prefix
        router = application.router
        # Add each path with and without the reverse proxy's prefix, because some proxies remove the prefix.
        for path, handler in self._paths(middleware):
            # A set, because aiohttp rejects duplicate routes.
            for each in {*_with_and_without_slash(path), *_with_and_without_slash(prefix + path)}:
                router.add_route("*", each, handler)
        for path, document in chain(self._metadata.endpoints(prefix), self._card_endpoints()):
            for each in _with_and_without_slash(path):
                router.add_route("*", each, middleware.cors_public(document))
        if admin_api is not None:
            admin_api.mount(router, middleware, is_main=True, is_private=True, prefixes=("", prefix))
        if self._pages is not None:
            self._pages.mount(router, middleware, prefixes=("", prefix))
        has_console = admin_api is not None and admin_api.console is not None
        # aiohttp's own 404 would bypass the guard.
        router.add_route("*", "/{path:.*}", middleware.checked(partial(self._not_found, has_console=has_console)))
        return application

    def _paths(self, middleware: Middleware) -> Iterator[tuple[str, Handler]]:
        endpoints: list[tuple[str, Endpoint, Binding]] = [
            (self._listen.path, self.streamable_http.handle, Binding.STREAMABLE_HTTP)
        ]
        if self.http_sse is not None:
            endpoints += [
                (SSE_PATH, self.http_sse.connect, Binding.HTTP_SSE),
                (MESSAGES_PATH, self.http_sse.post, Binding.HTTP_SSE),
            ]
        for path, endpoint, binding in endpoints:
            yield path, middleware.authenticated(endpoint, binding=binding)
            yield f"{path.rstrip('/')}{VIEW}", middleware.authenticated(endpoint, binding=binding, names_view=True)

    async def _not_found(self, request: HttpRequest, *, has_console: bool) -> web.Response:
        if wants_page(request):
            return welcome_page(
                request,
                self._dispatcher,
                path=self._listen.path,
                has_console=has_console,
                is_open=self._authenticator.is_open,
            )
        where = f"{request.client_endpoint.prefix}{self._listen.path}"
        return json_response({"error": f"not found; the MCP endpoint is {where}"}, request, status=404)

    def _card_endpoints(self) -> Iterable[tuple[str, Endpoint]]:
        if self._listen.public_url is None:
            return ()
        cards = ServerCards(
            public_url=self._listen.public_url,
            path=self._listen.path,
            sse_path=SSE_PATH if self._listen.sse else None,
            authenticator=self._authenticator,
            server_info=lambda: self._dispatcher.store.current.server_info,
        )
        return cards.endpoints(self._proxies.prefix)

    def _middleware(self, where: ListenAddress) -> Middleware:
        guard = Guard(
            address=where.address,
            public_url=self._listen.public_url,
            allowed_hosts=self._listen.allowed_hosts,
            allowed_origins=self._listen.allowed_origins,
        )
        return Middleware(
            guard=guard,
            proxies=self._proxies,
            authenticator=self._authenticator,
            metadata=self._metadata,
            is_draining=self._is_draining,
            mask=self._mask,
        )


def _with_and_without_slash(path: str) -> tuple[str, ...]:
    bare = path.rstrip("/")
    return (bare, f"{bare}/") if bare else ("/",)


def token_audiences(listen: Listen, address: Address) -> Iterator[str]:
    """Yield the endpoint URLs that clients can request access tokens for (RFC 8707 §2).

    The URLs start with `public_url`, or with the listener's address. If the address is loopback or a wildcard, the URLs
    of `localhost`, `127.0.0.1` and `::1` are added.
    """
    for path in (listen.path, *([SSE_PATH] if listen.sse else [])):
        for base in _bases(listen, address):
            yield f"{base}{path}"


def _bases(listen: Listen, address: Address) -> Iterator[str]:
    if listen.public_url is not None:
        yield listen.public_url.rstrip("/")
        return
    scheme = "http" if listen.tls is None else "https"
    names = _LOOPBACK if address.from_here != address or address.is_loopback else ()
    yield from (f"{scheme}://{Address(name, address.port)}" for name in dict.fromkeys([address.host, *names]))


def _scheme(tls: ServerTls | None) -> str:
    return "http" if tls is None else "https"


def _authority(address: Address) -> str:
    return str(address) if address.port else address.host


def _unix_sockets(where: ListenAddress) -> dict[str, list[str]]:
    paths = unix_paths(where.sockets)
    return {"sockets": paths} if paths else {}
