"""The middleware of every path: guard, CORS and authentication."""

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
_NO_VIEW: Final = HttpError(status=404, message="There is no such view (any more)")
_FOR_EVERY_PAGE: Final = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, HEAD",
    "Access-Control-Allow-Headers": "*",
}
_MAX_REMEMBERED: Final = 1024
"""Ways to reach us: a peer, a host, an origin, and what proxies say."""
_MAX_REMEMBERED_LENGTH: Final = 512
"""Characters of one of these; of what is longer, nothing is kept."""


class _Entrance(NamedTuple):
    """The facts that are the same for all requests from one peer to one host: remembered, for clients come back."""

    client_endpoint: ClientEndpoint
    refusal: HttpError | None
    """The guard's."""
    headers: Mapping[str, str]
    """Fields that every response carries."""


class _Head(NamedTuple):
    """The facts that are the same for all requests of a connection with the same header fields."""

    lines: RawHeaders
    """The fields as they came."""
    length_at: int
    """The index of `Content-Length` among them, which may differ."""
    version: HttpVersion
    fields: HeaderFields
    entrance: _Entrance
    refusal: HttpError | None
    """That of `request_smuggling`, or else the guard's."""

    def __repr__(self) -> str:
        """Leave the fields out: credentials are among them."""
        return "_Head()"

    def fits(self, lines: RawHeaders) -> bool:
        """Whether fields differ from these in nothing but the length of the body."""
        at, known = self.length_at, self.lines
        return (
            len(lines) == len(known)
            and lines[:at] == known[:at]
            and lines[at + 1 :] == known[at + 1 :]
            and lines[at][0] == known[at][0]
        )


class _Connection(Protocol):
    last_head: _Head | None
    """Of the last request, which the next one nearly always has too, but for the length of its body."""


class Middleware:
    """Makes handlers for a router of endpoints."""

    def __init__(  # noqa: PLR0913 - what the rooms hand over
        self,
        *,
        guard: Guard,
        proxies: TrustedProxies,
        authenticator: Authenticator,
        metadata: ResourceMetadata,
        is_draining: Callable[[], bool] = lambda: False,
        mask: Callable[[str], str] = str,
    ) -> None:
        """Do nothing yet.

        Args:
            guard: refuses hosts and origins.
            proxies: whose forwarded fields are believed.
            authenticator: says who sends a request.
            metadata: what clients that are not let in are pointed to.
            is_draining: whether connections should move on to another daemon after their next answer.
            mask: takes the secrets out of a refusal, which quotes what was sent, maybe a key in the wrong field.
        """
        self.authenticator: Final = authenticator
        self.metadata: Final = metadata
        self._guard: Final = guard
        self._proxies: Final = proxies
        self._is_draining: Final = is_draining
        self._mask: Final = mask
        self._remembered: Final = lru_cache(maxsize=_MAX_REMEMBERED)(self._entrance)

    def public(self, endpoint: Endpoint) -> Handler:
        """Let everybody in: probes come with whatever Host their orchestrator likes."""

        async def handle(raw: web.Request) -> web.StreamResponse:
            headers = self._headers(SERVER)
            return await endpoint(HttpRequest(raw, client_endpoint=self.client_endpoint(raw), response_headers=headers))

        return handle

    def client_endpoint(self, raw: web.Request) -> ClientEndpoint:
        """Return how a request's client reached us, whether or not it is let in."""
        return self._proxies.client_endpoint(
            peer=raw.remote or "", scheme=raw.scheme, host=host_of(raw), fields=raw.headers
        )

    def checked(self, endpoint: Endpoint) -> Handler:
        """Let in what the guard lets pass."""
        return self._handler(endpoint)

    def authenticated(
        self,
        endpoint: Endpoint,
        *,
        scopes: frozenset[str] = frozenset(),
        binding: Binding = Binding.STREAMABLE_HTTP,
        names_view: bool = False,
    ) -> Handler:
        """Let in what the guard lets pass, from callers who then say who they are, and hold the scopes.

        1. the guard: see `Guard.check`; preflights are answered before, for they never carry a credential
        2. the credential: see `Authenticator.identify`
        3. the scopes, and the view where the path names one: see `_denial`
        """
        return self._handler(endpoint, scopes=scopes, binding=binding, names_view=names_view)

    def cors_public(self, endpoint: Endpoint) -> Handler:
        """Let in whoever knows a name of ours, pages of every origin too: what is answered is no secret."""

        async def handle(raw: web.Request) -> web.StreamResponse:
            entrance = self._enter(raw, origin=None)
            refusal = refusal_of(raw) or entrance.refusal
            if refusal is not None:
                return self._refuse(refusal)
            headers = {**self._headers(SERVER), **_FOR_EVERY_PAGE}
            if raw.method not in {"GET", "HEAD"}:
                status = 204 if raw.method == "OPTIONS" else 405
                return web.Response(status=status, headers={"Allow": "GET, HEAD", **headers})
            client_endpoint = entrance.client_endpoint
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
        """Make the handler of a path; `scopes` are None where nobody has to say who it is."""
        make_challenge: MakeChallenge | None = None
        if scopes is not None:
            make_challenge = partial(self.metadata.challenge, scopes=scopes)

        async def handle(raw: web.Request) -> web.StreamResponse:
            head = self._head(raw)
            if head.refusal is not None:
                return self._refuse(head.refusal)
            headers = self._headers(head.entrance.headers)
            # Fetch: a preflight never carries a credential, so it is answered before one is asked for.
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
                    client_endpoint=head.entrance.client_endpoint,
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
            except (ConnectionError, asyncio.CancelledError) as error:  # the client went away
                # aiohttp's task and the traceback hold each other, and with it each frame that has the answer.
                error.__context__ = None
                raise error.with_traceback(None)  # noqa: B904 - from nothing

        return handle

    def _denial(self, request: HttpRequest, scopes: frozenset[str] | None) -> AuthError | HttpError | None:
        """Say why an authenticated caller may not have what a path serves.

        1. the caller holds the path's scopes: 403
        2. the token is not meant for other views alone (RFC 8707): 401
        3. there is a view of the name that the path has, and the caller holds its scopes: 404, or 403 if it is visible
        """
        identity, name = request.identity, request.view
        if scopes and not identity.holds(scopes):
            return insufficient_scope(scopes)
        if not identity.may_enter(name):
            return invalid_token("The token is meant for another view of this server")
        if name is None:
            return None
        view = self.metadata.find_view(name)
        if view is not None and identity.holds(view.scopes):
            return None
        # 404 and not 403 for a view that is hidden: whether there is one is not to be learnt by guessing names.
        return insufficient_scope(view.scopes) if view is not None and view.is_visible else _NO_VIEW

    async def holds(self, request: HttpRequest, scopes: frozenset[str]) -> bool:
        """Tell whether a request that nobody has authenticated brings credentials that hold these scopes."""
        identity = await self._identify(request.raw)
        return isinstance(identity, Identity) and identity.holds(scopes)

    async def _identify(self, raw: web.Request) -> Identity | AuthError:
        proofs, request = raw.headers.getall("DPoP", ()), None
        if proofs:
            url = f"{self._head(raw).entrance.client_endpoint.base_url}{raw.rel_url.raw_path}"
            request = ProofRequest(proofs=proofs, method=raw.method, url=url)
        return await self.authenticator.identify(
            authorization=raw.headers.getall("Authorization", ()),
            api_key=raw.headers.getall("X-API-Key", ()),
            request=request,
        )

    def _head(self, raw: web.Request) -> _Head:
        # A target in absolute form names a host of its own, which stands in none of the fields.
        is_plain = raw.raw_path.startswith("/")
        connection = cast("_Connection", raw.protocol)
        # What the fields alone decide is remembered; the credential among them is checked anew for each request.
        last = connection.last_head if is_plain else None
        lines = raw.raw_headers
        # The refusal depends on the version, too.
        if last is not None and last.version == raw.version:
            if last.lines == lines:
                return last
            if last.fits(lines):
                fields = last.fields.with_length(lines[last.length_at][1].decode())
                head = connection.last_head = last._replace(lines=lines, fields=fields)
                return head
        entrance = self._enter(raw, origin=_origin(raw))
        head = _Head(
            lines=lines,
            length_at=next((at for at, (name, _) in enumerate(lines) if name.lower() == b"content-length"), -1),
            version=raw.version,
            fields=read_fields(raw),
            entrance=entrance,
            refusal=refusal_of(raw) or entrance.refusal,
        )
        # `fits` leaves one field out, so a request without a length (GET, or a body in chunks) is not remembered.
        if is_plain and head.length_at >= 0:
            connection.last_head = head
        return head

    def _enter(self, raw: web.Request, *, origin: str | None) -> _Entrance:
        peer, host = raw.remote or "", host_of(raw)
        lines = self._proxies.believed_lines(peer, raw.headers)
        # Clients choose these texts: long ones would make the cache as large as they like.
        length = len(host) + len(origin or "")
        if lines:
            length += sum(len(line) for several in lines for line in several)
        look = self._remembered if length <= _MAX_REMEMBERED_LENGTH else self._entrance
        return look(peer, raw.scheme, host, origin, lines)

    def _entrance(self, peer: str, scheme: str, host: str, origin: str | None, lines: tuple[Lines, ...]) -> _Entrance:
        endpoint = self._proxies.client_endpoint_of(peer=peer, scheme=scheme, host=host, lines=lines)
        refusal = self._guard.check(host=endpoint.host, origin=origin)
        return _Entrance(endpoint, refusal, {**SERVER, **self._guard.cors(origin)})

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
    """The value of `Origin`. Several are joined (RFC 9110 §5.3), and so are no allowed one."""
    first = raw.headers.get("Origin")
    return first if first is None else ", ".join(raw.headers.getall("Origin"))
