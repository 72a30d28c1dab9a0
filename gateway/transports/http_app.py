"""The main listener's application: which path leads where."""

from collections.abc import Iterator
from dataclasses import dataclass

from aiohttp import web

from gateway.transports.front_door import Endpoint, FrontDoor
from gateway.transports.http_sse import MESSAGES_PATH, SSE_PATH, HttpSse
from gateway.transports.own_paths import OwnPaths, json_response
from gateway.transports.streamable_http.streamable_http import StreamableHttp
from gateway.transports.visit import Visit


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpApp:
    """The paths of one listener."""

    door: FrontDoor
    mcp: StreamableHttp
    sse: HttpSse | None
    path: str
    own: OwnPaths | None
    """None where they have a listener of their own."""
    prefix: str = ""
    """Under which a reverse proxy mounts the daemon. Some take it off the path and some do not, and a client that
    comes past the proxy uses the addresses that we emit: MCP's paths are there with it and without."""

    def application(self) -> web.Application:
        application = web.Application()
        router = application.router
        for path, handler in self._paths():
            for each in {*_with_and_without_slash(path), *_with_and_without_slash(self.prefix + path)}:
                router.add_route("*", each, self.door.private(handler))
        for path, handler in self.door.metadata.endpoints(self.prefix):
            for each in _with_and_without_slash(path):
                router.add_route("*", each, self.door.published(handler))
        if self.own is not None:
            self.own.mount(router, self.door)
        router.add_route("*", "/{path:.*}", self.door.guarded(self._not_found))
        return application

    def _paths(self) -> Iterator[tuple[str, Endpoint]]:
        yield self.path, self.mcp.handle
        if self.sse is not None:
            yield SSE_PATH, self.sse.connect
            yield MESSAGES_PATH, self.sse.post

    async def _not_found(self, visit: Visit) -> web.Response:
        where = f"{visit.approach.prefix}{self.path}"
        return json_response({"error": f"not found; the MCP endpoint is {where}"}, status=404, headers=visit.headers)


def _with_and_without_slash(path: str) -> tuple[str, ...]:
    bare = path.rstrip("/")
    return (bare, f"{bare}/") if bare else ("/",)
