"""Middleware: host and origin checks, CORS and authentication."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, NamedTuple, Protocol, cast

from aiohttp import HttpVersion, web
from aiohttp.typedefs import RawHeaders
from msgspec.structs import replace

from gateway.access.auth_error import AuthError, insufficient_scope, invalid_token
from gateway.access.authenticator import Authenticator
from gateway.access.dpop import ProofRequest
from gateway.access.identity import ANONYMOUS, UNAUTHENTICATED, Identity
from gateway.protocol.exchange import Binding
from gateway.transports.errors import HttpError
from gateway.transports.http.forwarded import ClientEndpoint, TrustedProxies
from gateway.transports.http.host_and_origin import ALLOWED_METHODS, Guard, host_of, refusal_of
from gateway.transports.http.request import Endpoint, HttpRequest, MakeChallenge, read_fields
from gateway.transports.http.resource_metadata import ResourceMetadata
from gateway.transports.http.response import SERVER, refuse

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_CLOSE: Final = {"Connection": "close"}
_NO_VIEW: Final = HttpError(status=404, message="Unknown view")
_FOR_EVERY_PAGE: Final = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, HEAD",
    "Access-Control-Allow-Headers": "*",
}


class _Head(NamedTuple):
    """The headers of a connection's previous request, with the results of checking them."""

    lines: RawHeaders
    length_at: int
    """The index of `Content-Length`, the only header whose value can differ in the next request."""
    version: HttpVersion
    fields: Mapping[str, str]
    client_endpoint: ClientEndpoint
    refusal: HttpError | None
    response_headers: Mapping[str, str]

    def __repr__(self) -> str:
        """Hide the headers, which contain credentials."""
        return "_Head()"

    def fits(self, lines: RawHeaders) -> bool:
        """Return whether the headers are the same except for the content length."""
        at, known = self.length_at, self.lines
        return lines == known or (
            len(lines) == len(known)
            and lines[:at] == known[:at]
            and lines[at + 1 :] == known[at + 1 :]
            and lines[at][0] == known[at][0]
        )


class _Connection(Protocol):
    last_head: _Head | None
    """The previous request's headers. Most requests repeat these headers, with a different content length."""


class Middleware:
    def __init__(  # noqa: PLR0913 - the parts of the checks
        self,
        *,
        guard: Guard,
        proxies: TrustedProxies,
        authenticator: Authenticator,
        metadata: ResourceMetadata,
        is_draining: Callable[[], bool] = lambda: False,
        mask: Callable[[str], str] = str,
    ) -> None:
        """If `is_draining` returns True, connections close after the response. `mask` removes secrets from errors."""
        self.authenticator: Final = authenticator
        self.metadata: Final = metadata
        self._guard: Final = guard
        self._proxies: Final = proxies
        self._is_draining: Final = is_draining
        self._mask: Final = mask

    def public(self, endpoint: Endpoint) -> Handler:
        """Return a handler without checks, for health probes, which can send any `Host` header."""

        async def handle(raw: web.Request) -> web.StreamResponse:
            headers = self._headers(SERVER)
            return await endpoint(HttpRequest(raw, client_endpoint=self.client_endpoint(raw), response_headers=headers))

        return handle

    def client_endpoint(self, raw: web.Request) -> ClientEndpoint:
        """Return the client's address and URL without checking them."""
        return self._proxies.client_endpoint(
            peer=raw.remote or "", scheme=raw.scheme, host=host_of(raw), fields=raw.headers
        )

    def checked(self, endpoint: Endpoint) -> Handler:
        return self.authenticated(endpoint, scopes=None)

    def authenticated(
        self,
        endpoint: Endpoint,
        *,
        scopes: frozenset[str] | None = frozenset(),
        binding: Binding = Binding.STREAMABLE_HTTP,
        names_view: bool = False,
    ) -> Handler:
        """Return a handler that calls `endpoint` for requests that pass these checks.

        1. The host and origin are allowed (see `Guard.check`). CORS preflights end here, without a credential.
        2. The credential is valid (see `Authenticator.identify`).
        3. The caller has the scopes, and can use the view if the path contains a view (see `_denial`).

        If `scopes` is None, callers are not authenticated.
        """
        make_challenge: MakeChallenge | None = None
        if scopes is not None:
            make_challenge = partial(self.metadata.challenge, scopes=scopes)

        async def handle(raw: web.Request) -> web.StreamResponse:
            head = self._head(raw)
            if head.refusal is not None:
                return self._refuse(head.refusal)
            headers = self._headers(head.response_headers)
            # Fetch: preflights contain no credential.
            if raw.method == "OPTIONS":
                return self._options(raw, _origin(raw), headers)
            try:
                if scopes is None:
                    identity: Identity | AuthError = UNAUTHENTICATED
                elif self.authenticator.is_open:
                    identity = ANONYMOUS
                else:
                    identity = await self._identify(raw)
                request = HttpRequest(
                    raw,
                    fields=head.fields,
                    client_endpoint=head.client_endpoint,
                    response_headers=headers,
                    identity=identity if isinstance(identity, Identity) else UNAUTHENTICATED,
                    binding=binding,
                    view=raw.match_info["view"] if names_view else None,
                    make_challenge=make_challenge,
                )
                denial = self._denial(request, scopes) if isinstance(identity, Identity) else identity
                if denial is not None:
                    return self._deny(denial, request)
                return await endpoint(request)
            except (ConnectionError, asyncio.CancelledError) as error:  # The client disconnected.
                # Break the reference cycle between aiohttp's task and the traceback, which would keep the response in
                # memory.
                error.__context__ = None
                raise error.with_traceback(None)  # noqa: B904 - re-raised

        return handle

    def cors_public(self, endpoint: Endpoint) -> Handler:
        """Return a handler that only checks `Host`. Web pages of any origin can read the response."""

        async def handle(raw: web.Request) -> web.StreamResponse:
            client_endpoint = self.client_endpoint(raw)
            refusal = refusal_of(raw) or self._guard.check(host=client_endpoint.host, origin=None)
            if refusal is not None:
                return self._refuse(refusal)
            headers = {**self._headers(SERVER), **_FOR_EVERY_PAGE}
            if raw.method not in {"GET", "HEAD"}:
                status = 204 if raw.method == "OPTIONS" else 405
                return web.Response(status=status, headers={"Allow": "GET, HEAD", **headers})
            return await endpoint(HttpRequest(raw, client_endpoint=client_endpoint, response_headers=headers))

        return handle

    def _denial(self, request: HttpRequest, scopes: frozenset[str] | None) -> AuthError | HttpError | None:
        """Return an error unless the authenticated caller can use the path.

        1. The caller has the path's scopes (otherwise 403).
        2. The token is not limited to other views (RFC 8707, otherwise 401).
        3. The view exists, and the caller has the view's scopes (otherwise 404, or 403 if the view is not hidden).
        """
        identity, name = request.identity, request.view
        if scopes and not identity.holds(scopes):
            return insufficient_scope(scopes)
        if not identity.may_enter(name):
            return invalid_token("The token was issued for a different view of this server")
        if name is None:
            return None
        view = self.metadata.find_view(name)
        if view is not None and identity.holds(view.access.scopes):
            return None
        # Hidden views return 404, so that their names cannot be guessed.
        return insufficient_scope(view.access.scopes) if view is not None and view.access.is_visible else _NO_VIEW

    async def holds(self, request: HttpRequest, scopes: frozenset[str]) -> bool:
        """Authenticate a request to a public path, and return whether the caller has these scopes."""
        identity = await self._identify(request.raw)
        return isinstance(identity, Identity) and identity.holds(scopes)

    async def _identify(self, raw: web.Request) -> Identity | AuthError:
        proofs, request = raw.headers.getall("DPoP", ()), None
        if proofs:
            url = f"{self._head(raw).client_endpoint.base_url}{raw.rel_url.raw_path}"
            request = ProofRequest(proofs=proofs, method=raw.method, url=url)
        return await self.authenticator.identify(
            authorization=raw.headers.getall("Authorization", ()),
            api_key=raw.headers.getall("X-API-Key", ()),
            request=request,
        )

    def _head(self, raw: web.Request) -> _Head:
        # Do not cache the headers for a target in absolute form, which contains another host.
        is_plain = raw.raw_path.startswith("/")
        connection = cast("_Connection", raw.protocol)
        # Credentials are not cached. They are checked for every request.
        last = connection.last_head if is_plain else None
        lines = raw.raw_headers
        # The HTTP version affects the result too.
        if last is not None and last.version == raw.version and last.fits(lines):
            return last
        origin, endpoint = _origin(raw), self.client_endpoint(raw)
        head = _Head(
            lines=lines,
            length_at=next((at for at, (name, _) in enumerate(lines) if name.lower() == b"content-length"), -1),
            version=raw.version,
            fields=read_fields(raw),
            client_endpoint=endpoint,
            refusal=refusal_of(raw) or self._guard.check(host=endpoint.host, origin=origin),
            response_headers={**SERVER, **self._guard.cors(origin)},
        )
        # `fits` only ignores the content length, so requests without one are not cached.
        if is_plain and head.length_at >= 0:
            connection.last_head = head
        return head

    def _headers(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        return {**headers, **_CLOSE} if self._is_draining() else headers

    def _refuse(self, refusal: HttpError) -> web.Response:
        masked = replace(refusal, message=self._mask(refusal.message))
        return refuse(masked, headers=self._headers(SERVER))

    def _deny(self, auth_error: AuthError | HttpError, request: HttpRequest) -> web.Response:
        if isinstance(auth_error, HttpError):
            return request.refuse(auth_error)
        address, path = request.client_endpoint.address, request.raw.path
        self.authenticator.record_denial(auth_error, address, path)
        headers = auth_error.headers(request.challenge)
        return request.refuse(HttpError(status=auth_error.status, message=auth_error.message, headers=headers))

    def _options(self, raw: web.Request, origin: str | None, headers: Mapping[str, str]) -> web.Response:
        if origin is None or "Access-Control-Request-Method" not in raw.headers:
            return web.Response(status=204, headers={"Allow": ALLOWED_METHODS, **headers})
        requested = raw.headers.get("Access-Control-Request-Headers", "")
        return web.Response(
            status=204, headers={**headers, **self._guard.preflight(origin, requested_headers=requested)}
        )


def _origin(raw: web.Request) -> str | None:
    """Return the `Origin` header. Repeated headers are joined, so that they match no allowed origin."""
    first = raw.headers.get("Origin")
    return first if first is None else ", ".join(raw.headers.getall("Origin"))
