"""The main listener's application: maps paths to endpoints."""

from collections.abc import Iterator, Mapping
from itertools import chain

import msgspec
from aiohttp import web
from yarl import URL

from gateway.protocol.exchange import Binding
from gateway.transports.http.admin_api import AdminApi, json_response
from gateway.transports.http.middleware import Handler, Middleware
from gateway.transports.http.request import Endpoint, HttpRequest
from gateway.transports.http.resource_metadata import VIEW
from gateway.transports.http.server_card import ServerCards
from gateway.transports.http_sse import MESSAGES_PATH, SSE_PATH, HttpSse
from gateway.transports.streamable_http.endpoint import StreamableHttp


class HttpApp(msgspec.Struct, frozen=True, kw_only=True):
    """The paths of one listener."""

    door: Middleware
    mcp: StreamableHttp
    sse: HttpSse | None
    path: str
    own: AdminApi | None
    """None where they have a listener of their own."""
    cards: ServerCards | None = None
    """None where the daemon does not know its public URL."""
    prefix: str = ""
    """Under which a reverse proxy mounts the daemon. Some take it off the path and some do not, and a client that
    comes past the proxy uses the addresses that we emit: MCP's paths are there with it and without."""

    def application(self) -> web.Application:
        application = web.Application()
        router = application.router
        for path, handler in self._paths():
            # A set: without a prefix the two are the same, and aiohttp refuses to add a route twice.
            for each in {*_with_and_without_slash(path), *_with_and_without_slash(self.prefix + path)}:
                router.add_route("*", each, handler)
        cards = () if self.cards is None else self.cards.endpoints(self.prefix)
        for path, document in chain(self.door.metadata.endpoints(self.prefix), cards):
            for each in _with_and_without_slash(path):
                router.add_route("*", each, self.door.cors_public(document))
        if self.own is not None:
            self.own.mount(router, self.door, prefixes=("", self.prefix))
        # Checked like all others: aiohttp's own 404 would pass by the guard.
        router.add_route("*", "/{path:.*}", self.door.checked(self._not_found))
        return application

    def direct(self) -> Mapping[str, Handler]:
        """Return the handlers of the MCP endpoint, which need no router."""
        handler = self.door.authenticated(self.mcp.handle)
        return {URL.build(path=path).raw_path: handler for path in (self.path, self.prefix + self.path)}

    def _paths(self) -> Iterator[tuple[str, Handler]]:
        yield from self._with_views(self.path, self.mcp.handle)
        if self.sse is not None:
            yield from self._with_views(SSE_PATH, self.sse.connect, binding=Binding.HTTP_SSE)
            yield from self._with_views(MESSAGES_PATH, self.sse.post, binding=Binding.HTTP_SSE)

    def _with_views(
        self, path: str, endpoint: Endpoint, *, binding: Binding = Binding.STREAMABLE_HTTP
    ) -> Iterator[tuple[str, Handler]]:
        yield path, self.door.authenticated(endpoint, binding=binding)
        yield f"{path.rstrip('/')}{VIEW}", self.door.authenticated(endpoint, binding=binding, names_view=True)

    async def _not_found(self, request: HttpRequest) -> web.Response:
        where = f"{request.client_endpoint.prefix}{self.path}"
        return json_response({"error": f"not found; the MCP endpoint is {where}"}, request, status=404)


def _with_and_without_slash(path: str) -> tuple[str, ...]:
    bare = path.rstrip("/")
    return (bare, f"{bare}/") if bare else ("/",)
