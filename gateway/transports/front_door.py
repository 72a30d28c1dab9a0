"""What stands before every path of a listener: the guard, CORS for browsers, and a log line for a bug of ours."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog
from aiohttp import web

from gateway.transports.guard import ALLOWED_METHODS, Guard
from gateway.transports.incoming import refuse
from gateway.transports.trusted_proxies import Approach, TrustedProxies
from gateway.transports.visit import Visit

log: Final = structlog.get_logger()

Endpoint = Callable[[Visit], Awaitable[web.StreamResponse]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_SERVER: Final = {"Server": "mcp-gateway"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontDoor:
    """Makes handlers for a router of endpoints."""

    guard: Guard
    proxies: TrustedProxies

    def open(self, endpoint: Endpoint) -> Handler:
        """Let everybody in: probes come with whatever Host their orchestrator likes."""

        async def handle(request: web.Request) -> web.StreamResponse:
            return await endpoint(Visit(request=request, approach=self._approach(request), headers=_SERVER))

        return handle

    def guarded(self, endpoint: Endpoint) -> Handler:
        """Let in whom the guard lets pass."""

        async def handle(request: web.Request) -> web.StreamResponse:
            approach, origin = self._approach(request), request.headers.get("Origin")
            refusal = self.guard.check(host=approach.host, origin=origin)
            if refusal is not None:
                return refuse(refusal, headers=_SERVER)
            headers = {**_SERVER, **self.guard.cors(origin)}
            if request.method == "OPTIONS":
                return self._options(request, origin, headers)
            try:
                return await endpoint(Visit(request=request, approach=approach, headers=headers))
            except ConnectionError:
                raise  # the client went away in the middle of its answer
            except Exception:  # Boundary: aiohttp answers 500; what happened is for the operator.
                log.exception("request handler failed", path=request.path, method=request.method)
                raise

        return handle

    def _approach(self, request: web.Request) -> Approach:
        return self.proxies.approach(
            peer=request.remote or "",
            scheme=request.scheme,
            host=request.headers.get("Host", ""),
            fields=request.headers,
        )

    def _options(self, request: web.Request, origin: str | None, headers: Mapping[str, str]) -> web.Response:
        if origin is None or "Access-Control-Request-Method" not in request.headers:
            return web.Response(status=204, headers={"Allow": ALLOWED_METHODS, **headers})
        requested = request.headers.get("Access-Control-Request-Headers", "")
        return web.Response(
            status=204, headers={**headers, **self.guard.preflight(origin, requested_headers=requested)}
        )
