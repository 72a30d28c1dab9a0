"""The HTTP listener's application: which path leads where, and what stands before all of them.

Every response passes here, so this is where the guard stands, where browsers get their CORS fields, and where a bug of
ours is logged before the client gets a bare 500.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import structlog
from aiohttp import web

from gateway.json_types import JsonObject
from gateway.protocol import jsonrpc
from gateway.transports.accept import JSON
from gateway.transports.guard import ALLOWED_METHODS, Guard, is_loopback_address, is_loopback_host
from gateway.transports.http_sse import MESSAGES_PATH, SSE_PATH, HttpSse
from gateway.transports.incoming import refuse
from gateway.transports.streamable_http import StreamableHttp

log: Final = structlog.get_logger()

Endpoint = Callable[[web.Request, Mapping[str, str]], Awaitable[web.StreamResponse]]

_SERVER: Final = {"Server": "mcp-gateway"}
_FORWARDED: Final = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")


class Health(Protocol):
    """What the daemon says about itself."""

    @property
    def is_ready(self) -> bool: ...
    def readiness(self) -> JsonObject: ...
    def status(self) -> JsonObject: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpApp:
    """The paths of one listener."""

    guard: Guard
    mcp: StreamableHttp
    sse: HttpSse | None
    path: str
    health: Health
    reload: Callable[[], Awaitable[JsonObject]]
    """Load the files again; says under `problems` what keeps them from being served."""

    def application(self) -> web.Application:
        application = web.Application()
        for path in _with_and_without_slash(self.path):
            application.router.add_route("*", path, self._guarded(self.mcp.handle))
        if self.sse is not None:
            for path in _with_and_without_slash(SSE_PATH):
                application.router.add_route("*", path, self._guarded(self.sse.connect))
            for path in _with_and_without_slash(MESSAGES_PATH):
                application.router.add_route("*", path, self._guarded(self.sse.post))
        # Probes come with whatever Host their orchestrator likes, and learn nothing that needs guarding.
        application.router.add_route("*", "/-/healthy", self._open(self._healthy))
        application.router.add_route("*", "/-/ready", self._open(self._ready))
        application.router.add_route("*", "/-/status", self._guarded(self._status))
        application.router.add_route("*", "/-/reload", self._guarded(self._reload))
        application.router.add_route("*", "/{path:.*}", self._guarded(self._not_found))
        return application

    def _open(self, endpoint: Endpoint) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            if request.method not in {"GET", "HEAD"}:
                return _json({"error": "method not allowed"}, status=405, headers={"Allow": "GET, HEAD", **_SERVER})
            return await endpoint(request, _SERVER)

        return handle

    def _guarded(self, endpoint: Endpoint) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            origin = request.headers.get("Origin")
            refusal = self.guard.check(host=request.headers.get("Host"), origin=origin)
            if refusal is not None:
                return refuse(refusal, headers=_SERVER)
            headers = {**_SERVER, **self.guard.cors(origin)}
            if request.method == "OPTIONS":
                return self._options(request, origin, headers)
            try:
                return await endpoint(request, headers)
            except ConnectionError:
                raise  # the client went away in the middle of its answer
            except Exception:  # Boundary: aiohttp answers 500; what happened is for the operator.
                log.exception("request handler failed", path=request.path, method=request.method)
                raise

        return handle

    def _options(self, request: web.Request, origin: str | None, headers: Mapping[str, str]) -> web.Response:
        if origin is None or "Access-Control-Request-Method" not in request.headers:
            return web.Response(status=204, headers={"Allow": ALLOWED_METHODS, **headers})
        requested = request.headers.get("Access-Control-Request-Headers", "")
        return web.Response(
            status=204, headers={**headers, **self.guard.preflight(origin, requested_headers=requested)}
        )

    async def _healthy(self, _request: web.Request, headers: Mapping[str, str]) -> web.Response:
        return _json({"healthy": True}, headers=headers)

    async def _ready(self, _request: web.Request, headers: Mapping[str, str]) -> web.Response:
        return _json(self.health.readiness(), status=200 if self.health.is_ready else 503, headers=headers)

    async def _status(self, request: web.Request, headers: Mapping[str, str]) -> web.Response:
        if not _is_local(request):
            return _json({"error": "not found; the status is for callers on this machine"}, status=404, headers=headers)
        if request.method not in {"GET", "HEAD"}:
            return _json({"error": "method not allowed"}, status=405, headers={"Allow": "GET, HEAD", **headers})
        return _json(self.health.status(), headers=headers)

    async def _reload(self, request: web.Request, headers: Mapping[str, str]) -> web.Response:
        if not _is_local(request) or "Origin" in request.headers:  # a page in a browser has no business here
            return _json({"error": "not found; reloads are for callers on this machine"}, status=404, headers=headers)
        if request.method != "POST":
            return _json({"error": "method not allowed"}, status=405, headers={"Allow": "POST", **headers})
        report = await self.reload()
        return _json(report, status=422 if report["problems"] else 200, headers=headers)

    async def _not_found(self, _request: web.Request, headers: Mapping[str, str]) -> web.Response:
        return _json({"error": f"not found; the MCP endpoint is {self.path}"}, status=404, headers=headers)


def _is_local(request: web.Request) -> bool:
    """Whether this machine asks. Behind a proxy every peer's address is loopback, hence the other two conditions."""
    return (
        is_loopback_address(request.remote or "")
        and is_loopback_host(request.headers.get("Host"))
        and not any(name in request.headers for name in _FORWARDED)
    )


def _with_and_without_slash(path: str) -> tuple[str, ...]:
    bare = path.rstrip("/")
    return (bare, f"{bare}/") if bare else ("/",)


def _json(value: JsonObject, *, status: int = 200, headers: Mapping[str, str]) -> web.Response:
    return web.Response(body=jsonrpc.encode(value), status=status, headers={"Content-Type": JSON, **headers})
