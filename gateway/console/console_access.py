"""Authenticates console requests by a credential in a header or by the signed cookie of a sign-in.

Threats handled here, and only here:

- Forged cookies: cookies are signed with the daemon's keys, and signatures are compared in constant time.
- Cookies sent to another listener or site: a cookie names the port of its listener and the URL of the daemon, because
  browsers send cookies to every port of a host.
- Stolen cookies: HttpOnly, SameSite=Strict and, over https, Secure with the prefix `__Host-` (RFC 6265bis §4.1.3).
- Old cookies: every cookie expires.
- Cross-site requests. `Sec-Fetch-Site` of a request with a cookie must not name another site, and unsafe methods need
  a custom header and the console's `Origin`. SameSite is not enough, because another port of a host is the same site.
- Credentials and scopes that a reload removed. The console checks both again for every request.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from typing import Final

import msgspec
from aiohttp import web
from msgspec.structs import replace

from gateway.access.auth_error import AuthError, insufficient_scope, invalid_token, missing_credentials
from gateway.access.authenticator import Authenticator, read_credential
from gateway.access.identity import ANONYMOUS, Credential, Identity, network_of
from gateway.bounded_map import BoundedMap
from gateway.state.keys import SignedTokens, SigningKeys
from gateway.transports.errors import HttpError
from gateway.transports.http.forwarded import ClientEndpoint
from gateway.transports.http.host_and_origin import origin_of
from gateway.transports.http.request import HttpRequest

HEADER: Final = "X-MCP-Gateway-Console"
MAX_FAILURES: Final = 10
WINDOW_SECONDS: Final = 60.0
# The number of addresses is bounded, so that an attacker with many addresses cannot exhaust the memory.
_MAX_ADDRESSES: Final = 4096
_TOKEN_BYTES: Final = 32
HOURS: Final = 12
_MAX_COOKIE_BYTES: Final = 4096
"""The cookie size that every browser must support (RFC 6265 §6.1)."""
_READ: Final = frozenset({"GET", "HEAD"})
_FOREIGN: Final = HttpError(
    status=403,
    message=f"Requests with a cookie are only accepted from the console's page. They must contain {HEADER}: 1, Origin, "
    "and, if the browser supports it, Sec-Fetch-Site: same-origin. In scripts, send `Authorization: Bearer …` instead",
)


def printed_token(shared_keys: SigningKeys | None = None) -> str:
    """Return the token that a daemon without `auth` logs. The token is random, or derived from shared keys.

    The console requires a token even if MCP clients need no credential, because the console shows the calls of all
    callers, and other users of the machine and websites can reach the loopback address.
    """
    if shared_keys is None:
        return secrets.token_urlsafe(_TOKEN_BYTES)
    # The HMAC hides the signing key, because the token is logged.
    return hmac.new(shared_keys()[0], b"console token", hashlib.sha256).hexdigest()


class FailedSignIns:
    """Limits failed sign-ins per IPv4 address or IPv6 network, so that weak keys cannot be guessed."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._failures: Final[BoundedMap[str, tuple[int, float]]] = BoundedMap(_MAX_ADDRESSES, clock=clock)

    def seconds_to_wait(self, address: str) -> int | None:
        """Return the seconds until an address can sign in again, or None if it can sign in now."""
        found = self._failures.get(network_of(address))
        if found is None or found[0] < MAX_FAILURES:
            return None
        return max(1, round(found[1] - self._clock()))

    def add(self, address: str) -> None:
        key = network_of(address)
        count, end = self._failures.get(key) or (0, self._clock() + WINDOW_SECONDS)
        self._failures.put(key, (count + 1, end), expires=end)


class ConsoleSession(msgspec.Struct, frozen=True, array_like=True):
    audience: str
    """The listener and the public URL for which the cookie is valid."""
    expires_at: float
    """The expiry time in Unix seconds."""
    identity: Identity | None = None
    """The identity of the API key or access token, or None for a sign-in with the printed token."""
    token: str = ""


class ConsoleAccess:
    """Decides which callers can use the console.

    Callers need all scopes in `scopes` or in `operators`. Without `auth`, callers need the printed `token` instead.
    `keys` sign the cookies.
    """

    def __init__(  # noqa: PLR0913 - who is admitted, and what signs cookies
        self,
        authenticator: Authenticator,
        *,
        scopes: frozenset[str],
        operators: frozenset[str],
        token: str,
        keys: SigningKeys,
        clock: Callable[[], float],
    ) -> None:
        self.authenticator: Final = authenticator
        self.token: Final = token
        self._digest: Final = hashlib.sha256(token.encode()).hexdigest()[:32]
        self._scopes: Final = scopes
        self._operators: Final = operators
        self._sessions: Final = SignedTokens(keys, ConsoleSession, purpose="console-session")
        self._clock: Final = clock
        self._failures: Final = FailedSignIns()

    def concerns(self, raw: web.Request, endpoint: ClientEndpoint) -> bool:
        """Return whether a request comes from a browser or has a credential for the console."""
        if "Sec-Fetch-Site" in raw.headers or _cookie_name(endpoint) in raw.cookies:
            return True
        has_credential = "Authorization" in raw.headers or "X-API-Key" in raw.headers
        return has_credential and (not self.authenticator.is_open or self._has_token(raw))

    async def identify(self, request: HttpRequest) -> Identity | AuthError | HttpError:
        """Return the identity of a request with its current scopes, or an error with one of these statuses.

        1. A credential in a header must be valid (400 or 401). Without `auth`, too many failures return 429.
        2. A request without such a header needs a valid cookie (401).
        3. A request with a cookie must come from the console's page (403).
        4. `permitted` must accept the identity (401, 403).
        """
        raw = request.raw
        if "Authorization" in raw.headers or "X-API-Key" in raw.headers:
            found = await self.by_header(request)
        else:
            found = self.of_cookie(request) or missing_credentials()
            if isinstance(found, Identity) and not self.is_own(request):
                return _FOREIGN
        return found if isinstance(found, AuthError | HttpError) else self.permitted(found)

    async def by_credential(self, text: str, *, address: str) -> Identity | AuthError | HttpError:
        """Return the identity of an API key, an access token or the printed token, or an error.

        1. Without `auth`, the printed token is always accepted, because the token cannot be guessed.
        2. The address must not have failed too often (429).
        3. The credential must be valid (400, 401).
        """
        if self.authenticator.is_open and self._is_printed(text):
            return ANONYMOUS
        if (seconds := self._failures.seconds_to_wait(address)) is not None:
            message = "Too many failed sign-ins from this address"
            return HttpError(status=429, message=message, headers={"Retry-After": str(seconds)})
        if self.authenticator.is_open:
            found: Identity | AuthError = invalid_token("The token is not valid for this daemon")
            self.authenticator.denied[401] += 1
        else:
            found = await self.authenticator.identify(authorization=[f"Bearer {text}"], api_key=())
        if isinstance(found, AuthError) and found.status in {400, 401}:
            self._failures.add(address)
        return found

    def permitted(self, identity: Identity) -> Identity | AuthError:
        """Return the identity, or an error if it lacks the scopes (403) or is limited to a view (401)."""
        if not identity.may_enter(None):
            return invalid_token("The token is only valid for a view of this server")
        if identity.holds(self._scopes) or identity.holds(self._operators):
            return identity
        return insufficient_scope(self._scopes)

    def is_own(self, request: HttpRequest) -> bool:
        """Return whether the browser's headers show that a request comes from the console's own page."""
        fields = request.raw.headers
        site, origin = fields.get("Sec-Fetch-Site"), fields.get("Origin")
        # Fetch Metadata (W3C): `none` means that the user started the request. Older browsers omit the header.
        if request.raw.method in _READ:
            return site in {None, "same-origin", "none"}
        return (
            fields.get(HEADER) == "1"
            and site in {None, "same-origin"}
            # Fetch Standard: browsers send Origin with every unsafe method.
            and origin is not None
            and origin_of(origin) in own_origins(request)
        )

    def give_cookie(self, identity: Identity, request: HttpRequest, response: web.StreamResponse) -> bool:
        """Set the cookie on a response. Return False if the cookie is too large for browsers."""
        is_open, now = self.authenticator.is_open, self._clock()
        expires_at = session_end(identity, now=now)
        value = self._sessions.sign(
            ConsoleSession(
                audience=_audience_of(request),
                expires_at=expires_at,
                identity=None if is_open else replace(identity, claims={}),
                token=self._digest if is_open else "",
            )
        )
        # The size in RFC 6265 §6.1 includes the name and attributes, so reserve 512 bytes for both.
        if len(value) > _MAX_COOKIE_BYTES - 512:
            return False
        _set_cookie(value, request, response, seconds=int(expires_at - now))
        return True

    def take_cookie(self, request: HttpRequest, response: web.StreamResponse) -> None:
        _set_cookie("", request, response, seconds=0)

    async def by_header(self, request: HttpRequest) -> Identity | AuthError | HttpError:
        fields = request.raw.headers
        if self.authenticator.is_open:
            credential = _credential_of(request.raw)
            if not isinstance(credential, Credential):
                return credential or missing_credentials()
            return await self.by_credential(credential.secret, address=request.client_endpoint.address)
        return await self.authenticator.identify(
            authorization=fields.getall("Authorization", ()), api_key=fields.getall("X-API-Key", ())
        )

    def of_cookie(self, request: HttpRequest) -> Identity | None:
        """Return the current identity of the request's cookie, or None if the cookie is missing or not valid.

        A reload or a restart can end a session. This method does not check which page sent the request.
        """
        value = request.raw.cookies.get(_cookie_name(request.client_endpoint), "")
        session = self._sessions.read(value) if len(value) <= _MAX_COOKIE_BYTES else None
        if session is None or session.audience != _audience_of(request) or session.expires_at <= self._clock():
            return None
        if self.authenticator.is_open:
            # Reject a cookie with an identity, which was issued while `auth` was configured.
            is_good = session.identity is None and session.token == self._digest
            return ANONYMOUS if is_good else None
        return None if session.identity is None else self.authenticator.revalidate(session.identity)

    def _has_token(self, raw: web.Request) -> bool:
        credential = _credential_of(raw)
        return isinstance(credential, Credential) and self._is_printed(credential.secret)

    def _is_printed(self, text: str) -> bool:
        # JSON can contain lone surrogates, which cannot be encoded.
        return hmac.compare_digest(self.token.encode(), text.encode(errors="replace"))


def _credential_of(raw: web.Request) -> Credential | AuthError | None:
    fields = raw.headers
    return read_credential(authorization=fields.getall("Authorization", ()), api_key=fields.getall("X-API-Key", ()))


def own_origins(request: HttpRequest) -> set[str]:
    """Return the origins that the console's page can have. `Host` has been validated before this call."""
    endpoint = request.client_endpoint
    scheme, _, rest = endpoint.base_url.partition("://")
    direct = f"{request.raw.scheme}://{request.raw.host}"
    # Behind a proxy, the page has the origin of the public URL. Otherwise, `Host` contains the origin of the page.
    return {origin_of(f"{scheme}://{rest.partition('/')[0]}"), origin_of(direct)} - {""}


def session_end(identity: Identity, *, now: float) -> float:
    end = now + HOURS * 3600
    return end if identity.expires_at is None else min(end, identity.expires_at)


def _set_cookie(value: str, request: HttpRequest, response: web.StreamResponse, *, seconds: int) -> None:
    endpoint = request.client_endpoint
    is_secure = _is_secure(endpoint)
    response.set_cookie(
        _cookie_name(endpoint),
        value,
        max_age=seconds,
        # RFC 6265bis §4.1.3.2: `__Host-` requires the path /. A semicolon in the path would end the attribute.
        path="/" if is_secure or ";" in endpoint.prefix else f"{endpoint.prefix}/-/",
        secure=is_secure,
        httponly=True,
        samesite="Strict",
    )


def _cookie_name(endpoint: ClientEndpoint) -> str:
    """Return a cookie name that is unique to the daemon's URL, because all ports of a host share their cookies."""
    digest = hashlib.sha256(endpoint.base_url.encode()).hexdigest()[:8]
    return f"{'__Host-' if _is_secure(endpoint) else ''}mcp-gateway-{digest}"


def _audience_of(request: HttpRequest) -> str:
    """Return the listener that received a request, and the public URL of the daemon."""
    socket_name = request.raw.get_extra_info("sockname")
    listener = socket_name[1] if isinstance(socket_name, tuple) else socket_name
    return f"{listener} {request.client_endpoint.base_url}"


def _is_secure(endpoint: ClientEndpoint) -> bool:
    return endpoint.base_url.startswith("https:")
