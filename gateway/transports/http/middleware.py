"""Middleware: host and origin checks, CORS and authentication."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache, partial
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
from gateway.transports.http.forwarded import ClientEndpoint, Lines, TrustedProxies
from gateway.transports.http.host_and_origin import ALLOWED_METHODS, Guard, host_of, refusal_of
from gateway.transports.http.request import Endpoint, HeaderFields, HttpRequest, MakeChallenge, read_fields
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
_MAX_CACHED: Final = 1024
"""Combinations of peer, host, origin and forwarded headers."""
_MAX_CACHED_LENGTH: Final = 512
"""Characters. Longer combinations are not cached."""


class _PeerCheck(NamedTuple):
    """The cached result of checking a peer, host and origin."""

    client_endpoint: ClientEndpoint
    refusal: HttpError | None
    headers: Mapping[str, str]


class _Head(NamedTuple):
    """The result of checking the headers of a connection's previous request."""

    lines: RawHeaders
    length_at: int
    """The index of `Content-Length`, the only value that can differ."""
    version: HttpVersion
    fields: HeaderFields
    peer_check: _PeerCheck
    refusal: HttpError | None

    def __repr__(self) -> str:
        """Hide the headers, which contain credentials."""
        return "_Head()"

    def fits(self, lines: RawHeaders) -> bool:
        """Return whether the headers are the same except for the content length."""
        at, known = self.length_at, self.lines
        return (
            len(lines) == len(known)
            and lines[:at] == known[:at]
            and lines[at + 1 :] == known[at + 1 :]
            and lines[at][0] == known[at][0]
        )


class _Connection(Protocol):
    last_head: _Head | None
    """The next request usually repeats the headers, with a different content length."""


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
        """Create the middleware.

        Args:
            guard: Checks hosts and origins.
            proxies: The proxies whose forwarded headers are trusted.
            authenticator: Identifies callers.
            metadata: Builds the challenges of 401 and 403 responses.
            is_draining: Whether connections close after their next response.
            mask: Removes secrets from error messages, such as a key sent in the wrong header.
        """
        self.authenticator: Final = authenticator
        self.metadata: Final = metadata
        self._guard: Final = guard
        self._proxies: Final = proxies
        self._is_draining: Final = is_draining
        self._mask: Final = mask
        self._cached_peer_check: Final = lru_cache(maxsize=_MAX_CACHED)(self._make_peer_check)

    def public(self, endpoint: Endpoint) -> Handler:
        """Accept every request. Health probes can have any Host."""

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
        """Accept requests with an allowed host and origin."""
        return self._handler(endpoint)

    def authenticated(
        self,
        endpoint: Endpoint,
        *,
        scopes: frozenset[str] = frozenset(),
        binding: Binding = Binding.STREAMABLE_HTTP,
        names_view: bool = False,
    ) -> Handler:
        """Accept requests that pass all checks.

        1. The host and origin: see `Guard.check`. Preflights end here, because they contain no credential.
        2. The credential: see `Authenticator.identify`.
        3. The scopes, and the view if the path names one: see `_denial`.
        """
        return self._handler(endpoint, scopes=scopes, binding=binding, names_view=names_view)

    def cors_public(self, endpoint: Endpoint) -> Handler:
        """Accept requests with an allowed Host from any origin, because the response is public."""

        async def handle(raw: web.Request) -> web.StreamResponse:
            peer_check = self._check_peer(raw, origin=None)
            refusal = refusal_of(raw) or peer_check.refusal
            if refusal is not None:
                return self._refuse(refusal)
            headers = {**self._headers(SERVER), **_FOR_EVERY_PAGE}
            if raw.method not in {"GET", "HEAD"}:
                status = 204 if raw.method == "OPTIONS" else 405
                return web.Response(status=status, headers={"Allow": "GET, HEAD", **headers})
            client_endpoint = peer_check.client_endpoint
            return await endpoint(HttpRequest(raw, client_endpoint=client_endpoint, response_headers=headers))

        return handle

    def _handler(
        self,
        endpoint: Endpoint,
        *,
        scopes: frozenset[str] | None = None,
        binding: Binding = Binding.STREAMABLE_HTTP,
        names_view: bool = False,
    ) -> Handler:
        """Return the handler of a path. `scopes` is None without authentication."""
        make_challenge: MakeChallenge | None = None
        if scopes is not None:
            make_challenge = partial(self.metadata.challenge, scopes=scopes)

        async def handle(raw: web.Request) -> web.StreamResponse:
            head = self._head(raw)
            if head.refusal is not None:
                return self._refuse(head.refusal)
            headers = self._headers(head.peer_check.headers)
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
                    client_endpoint=head.peer_check.client_endpoint,
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

    def _denial(self, request: HttpRequest, scopes: frozenset[str] | None) -> AuthError | HttpError | None:
        """Return an error unless the authenticated caller can use the path.

        1. The caller has the path's scopes: 403
        2. The token is not limited to other views (RFC 8707): 401
        3. The view exists, and the caller has its scopes: 404, or 403 if the view is visible
        """
        identity, name = request.identity, request.view
        if scopes and not identity.holds(scopes):
            return insufficient_scope(scopes)
        if not identity.may_enter(name):
            return invalid_token("The token was issued for a different view of this server")
        if name is None:
            return None
        view = self.metadata.find_view(name)
        if view is not None and identity.holds(view.scopes):
            return None
        # Hidden views return 404, so that their names cannot be guessed.
        return insufficient_scope(view.scopes) if view is not None and view.is_visible else _NO_VIEW

    async def holds(self, request: HttpRequest, scopes: frozenset[str]) -> bool:
        """Return whether the credentials of an unauthenticated request have these scopes."""
        identity = await self._identify(request.raw)
        return isinstance(identity, Identity) and identity.holds(scopes)

    async def _identify(self, raw: web.Request) -> Identity | AuthError:
        proofs, request = raw.headers.getall("DPoP", ()), None
        if proofs:
            url = f"{self._head(raw).peer_check.client_endpoint.base_url}{raw.rel_url.raw_path}"
            request = ProofRequest(proofs=proofs, method=raw.method, url=url)
        return await self.authenticator.identify(
            authorization=raw.headers.getall("Authorization", ()),
            api_key=raw.headers.getall("X-API-Key", ()),
            request=request,
        )

    def _head(self, raw: web.Request) -> _Head:
        # A target in absolute form contains a host.
        is_plain = raw.raw_path.startswith("/")
        connection = cast("_Connection", raw.protocol)
        # Credentials are not cached. They are checked for every request.
        last = connection.last_head if is_plain else None
        lines = raw.raw_headers
        # The HTTP version affects the result too.
        if last is not None and last.version == raw.version:
            if last.lines == lines:
                return last
            if last.fits(lines):
                fields = last.fields.with_length(lines[last.length_at][1].decode())
                head = connection.last_head = last._replace(lines=lines, fields=fields)
                return head
        peer_check = self._check_peer(raw, origin=_origin(raw))
        head = _Head(
            lines=lines,
            length_at=next((at for at, (name, _) in enumerate(lines) if name.lower() == b"content-length"), -1),
            version=raw.version,
            fields=read_fields(raw),
            peer_check=peer_check,
            refusal=refusal_of(raw) or peer_check.refusal,
        )
        # `fits` only ignores the content length, so requests without one are not cached.
        if is_plain and head.length_at >= 0:
            connection.last_head = head
        return head

    def _check_peer(self, raw: web.Request, *, origin: str | None) -> _PeerCheck:
        peer, host = raw.remote or "", host_of(raw)
        lines = self._proxies.believed_lines(peer, raw.headers)
        # Clients choose these values, so do not cache long ones.
        length = len(host) + len(origin or "")
        if lines:
            length += sum(len(line) for several in lines for line in several)
        look = self._cached_peer_check if length <= _MAX_CACHED_LENGTH else self._make_peer_check
        return look(peer, raw.scheme, host, origin, lines)

    def _make_peer_check(
        self, peer: str, scheme: str, host: str, origin: str | None, lines: tuple[Lines, ...]
    ) -> _PeerCheck:
        endpoint = self._proxies.client_endpoint_of(peer=peer, scheme=scheme, host=host, lines=lines)
        refusal = self._guard.check(host=endpoint.host, origin=origin)
        return _PeerCheck(endpoint, refusal, {**SERVER, **self._guard.cors(origin)})

    def _headers(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        return {**headers, **_CLOSE} if self._is_draining() else headers

    def _refuse(self, refusal: HttpError) -> web.Response:
        masked = replace(refusal, message=self._mask(refusal.message))
        return refuse(masked, headers=self._headers(SERVER))

    def _deny(self, auth_error: AuthError | HttpError, request: HttpRequest) -> web.Response:
        if isinstance(auth_error, HttpError):
            return request.refuse(auth_error)
        address, path = request.client_endpoint.address, request.raw.path
        self.authenticator.record_denial(auth_error, address=address, path=path)
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
    """Return `Origin`. Repeated values are joined (RFC 9110 §5.3) and then match no allow-list."""
    first = raw.headers.get("Origin")
    return first if first is None else ", ".join(raw.headers.getall("Origin"))
