"""What stands before every path of a listener: the guard, CORS for browsers, and a log line for a bug of ours."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog
from aiohttp import web

from gateway.transports.guard import ALLOWED_METHODS, Guard
from gateway.transports.incoming import refuse

log: Final = structlog.get_logger()

Endpoint = Callable[[web.Request, Mapping[str, str]], Awaitable[web.StreamResponse]]
"""Answers a request; the mapping are header fields for its response."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_SERVER: Final = {"Server": "mcp-gateway"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontDoor:
    """Makes handlers for a router of endpoints."""

    guard: Guard

    def open(self, endpoint: Endpoint) -> Handler:
        """Let everybody in: probes come with whatever Host their orchestrator likes."""

        async def handle(request: web.Request) -> web.StreamResponse:
            return await endpoint(request, _SERVER)

        return handle

    def guarded(self, endpoint: Endpoint) -> Handler:
        """Let in whom the guard lets pass."""

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
