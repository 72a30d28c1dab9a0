"""What stands before every path of a listener: the guard, CORS, who calls, and a log line for a bug of ours."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import structlog
from aiohttp import web

from gateway.access.authenticator import Authenticator
from gateway.access.denial import Denial, insufficient
from gateway.access.identity import NOBODY
from gateway.transports import framing
from gateway.transports.guard import ALLOWED_METHODS, Guard
from gateway.transports.incoming import SERVER, refuse
from gateway.transports.refusal import Refusal
from gateway.transports.resource_metadata import ResourceMetadata
from gateway.transports.trusted_proxies import Approach, TrustedProxies
from gateway.transports.visit import Visit

log: Final = structlog.get_logger()

Endpoint = Callable[[Visit], Awaitable[web.StreamResponse]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Passed = Callable[[web.Request, Approach, Mapping[str, str]], Awaitable[web.StreamResponse]]
"""Takes a request that the guard has let pass, how it came, and the fields that every response to it carries."""

_LEAVING: Final = {**SERVER, "Connection": "close"}
_FOR_EVERY_PAGE: Final = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, HEAD",
    "Access-Control-Allow-Headers": "*",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontDoor:
    """Makes handlers for a router of endpoints."""

    guard: Guard
    proxies: TrustedProxies
    authenticator: Authenticator
    metadata: ResourceMetadata
    is_leaving: Callable[[], bool] = lambda: False
    """Whether connections should move on to another daemon after their next answer."""
    mask: Callable[[str], str] = str
    """Takes the secrets out of a refusal, which quotes what was sent: a key may have slipped into the wrong field."""

    def open(self, endpoint: Endpoint) -> Handler:
        """Let everybody in: probes come with whatever Host their orchestrator likes."""

        async def handle(request: web.Request) -> web.StreamResponse:
            return await endpoint(Visit(request=request, approach=self._approach(request), headers=self._fields()))

        return handle

    def guarded(self, endpoint: Endpoint) -> Handler:
        """Let in whom the guard lets pass."""

        async def enter(request: web.Request, approach: Approach, headers: Mapping[str, str]) -> web.StreamResponse:
            return await endpoint(Visit(request=request, approach=approach, headers=headers))

        return self._guarded(enter)

    def private(self, endpoint: Endpoint, *, scopes: frozenset[str] = frozenset()) -> Handler:
        """Let in whom the guard lets pass, and who then says who it is, and holds the scopes.

        1. the guard: see `Guard.check`; preflights are answered before, for they never carry a credential
        2. the credential: see `Authenticator.identify`
        3. the scopes: 403
        """

        async def enter(request: web.Request, approach: Approach, headers: Mapping[str, str]) -> web.StreamResponse:
            identity = await self.authenticator.identify(
                authorization=request.headers.getall("Authorization", ()),
                api_key=request.headers.getall("X-API-Key", ()),
            )
            visit = Visit(
                request=request,
                approach=approach,
                headers=headers,
                identity=NOBODY if isinstance(identity, Denial) else identity,
                entry=self.metadata.entry(approach, path=request.path, scopes=scopes),
            )
            if isinstance(identity, Denial):
                return self._deny(identity, visit)
            if not identity.holds(scopes):
                return self._deny(insufficient(scopes), visit)
            return await endpoint(visit)

        return self._guarded(enter)

    def published(self, endpoint: Endpoint) -> Handler:
        """Let in whoever knows a name of ours, pages of every origin too: what is answered is no secret."""

        async def handle(request: web.Request) -> web.StreamResponse:
            approach = self._approach(request)
            refusal = framing.refusal_of(request) or self.guard.check(host=approach.host, origin=None)
            if refusal is not None:
                return self._refuse(refusal)
            headers = {**self._fields(), **_FOR_EVERY_PAGE}
            if request.method not in {"GET", "HEAD"}:
                status = 204 if request.method == "OPTIONS" else 405
                return web.Response(status=status, headers={"Allow": "GET, HEAD", **headers})
            return await endpoint(Visit(request=request, approach=approach, headers=headers))

        return handle

    def _guarded(self, passed: Passed) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            approach, origin = self._approach(request), _origin(request)
            refusal = framing.refusal_of(request) or self.guard.check(host=approach.host, origin=origin)
            if refusal is not None:
                return self._refuse(refusal)
            headers = {**self._fields(), **self.guard.cors(origin)}
            if request.method == "OPTIONS":
                return self._options(request, origin, headers)
            try:
                return await passed(request, approach, headers)
            except ConnectionError:
                raise  # the client went away in the middle of its answer
            except Exception:  # Boundary: aiohttp answers 500; what happened is for the operator.
                log.exception("request handler failed", path=request.path, method=request.method)
                raise

        return handle

    def _refuse(self, refusal: Refusal) -> web.Response:
        return refuse(replace(refusal, message=self.mask(refusal.message)), headers=self._fields())

    def _fields(self) -> Mapping[str, str]:
        return _LEAVING if self.is_leaving() else SERVER

    def _deny(self, denial: Denial, visit: Visit) -> web.Response:
        self.authenticator.tell(denial, address=visit.approach.address, path=visit.request.path)
        refusal = Refusal(status=denial.status, message=denial.message, headers=denial.fields(visit.entry))
        return refuse(refusal, headers=visit.headers)

    def _approach(self, request: web.Request) -> Approach:
        return self.proxies.approach(
            peer=request.remote or "",
            scheme=request.scheme,
            host=framing.host_of(request),
            fields=request.headers,
        )

    def _options(self, request: web.Request, origin: str | None, headers: Mapping[str, str]) -> web.Response:
        if origin is None or "Access-Control-Request-Method" not in request.headers:
            return web.Response(status=204, headers={"Allow": ALLOWED_METHODS, **headers})
        requested = request.headers.get("Access-Control-Request-Headers", "")
        return web.Response(
            status=204, headers={**headers, **self.guard.preflight(origin, requested_headers=requested)}
        )


def _origin(request: web.Request) -> str | None:
    """What `Origin` says. Several are joined (RFC 9110 §5.3), and so are nobody's."""
    return ", ".join(request.headers.getall("Origin", ())) if "Origin" in request.headers else None
