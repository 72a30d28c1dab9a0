"""The main listener's application: which path leads where."""

from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

from gateway.transports.front_door import FrontDoor
from gateway.transports.http_sse import MESSAGES_PATH, SSE_PATH, HttpSse
from gateway.transports.own_paths import OwnPaths, json_response
from gateway.transports.streamable_http import StreamableHttp


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpApp:
    """The paths of one listener."""

    door: FrontDoor
    mcp: StreamableHttp
    sse: HttpSse | None
    path: str
    own: OwnPaths | None
    """None where they have a listener of their own."""

    def application(self) -> web.Application:
        application = web.Application()
        router = application.router
        for path in _with_and_without_slash(self.path):
            router.add_route("*", path, self.door.guarded(self.mcp.handle))
        if self.sse is not None:
            for path in _with_and_without_slash(SSE_PATH):
                router.add_route("*", path, self.door.guarded(self.sse.connect))
            for path in _with_and_without_slash(MESSAGES_PATH):
                router.add_route("*", path, self.door.guarded(self.sse.post))
        if self.own is not None:
            self.own.mount(router, self.door)
        router.add_route("*", "/{path:.*}", self.door.guarded(self._not_found))
        return application

    async def _not_found(self, _request: web.Request, headers: Mapping[str, str]) -> web.Response:
        return json_response({"error": f"not found; the MCP endpoint is {self.path}"}, status=404, headers=headers)


def _with_and_without_slash(path: str) -> tuple[str, ...]:
    bare = path.rstrip("/")
    return (bare, f"{bare}/") if bare else ("/",)
