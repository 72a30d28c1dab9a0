"""Says who may use the console, and as whom: by a credential in a header field, or by the cookie of a sign-in.

Threats answered here, and only here:

- A page elsewhere that has the user's browser send a request. Only the page's own requests count with a cookie:
  `Sec-Fetch-Site` must say so, and what changes something needs a header field that only scripts of ours can set, and
  our own `Origin`. Another port of the same host is the same *site*, so SameSite alone would not do.
- A key or token that a reload took away, or scopes that it lost: each request asks again.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Final

from aiohttp import web
from msgspec.structs import replace

from gateway.access.auth_error import AuthError, insufficient_scope, invalid_token, missing_credentials
from gateway.access.authenticator import Authenticator
from gateway.access.credentials import Credential, read_credential
from gateway.access.identity import ANONYMOUS, Identity, network_of
from gateway.bounded_map import BoundedMap
from gateway.console.session_cookie import ConsoleSession, SessionCookies, cookie_name
from gateway.state.keys import SigningKeys
from gateway.transports.errors import HttpError
from gateway.transports.http.forwarded import ClientEndpoint
from gateway.transports.http.host_and_origin import origin_of
from gateway.transports.http.request import HttpRequest

HEADER: Final = "X-MCP-Gateway-Console"
MAX_FAILURES: Final = 10
"""Of one address, within `WINDOW_SECONDS`."""
WINDOW_SECONDS: Final = 60.0
# Bounded: an attacker with many addresses must not fill the memory.
_MAX_ADDRESSES: Final = 4096
_TOKEN_BYTES: Final = 32
_READ: Final = frozenset({"GET", "HEAD"})
_FOREIGN: Final = HttpError(
    status=403,
    message=f"A request with a cookie must come from the console's own page: it needs {HEADER}: 1, Origin, and "
    "Sec-Fetch-Site: same-origin where the browser sends it. Scripts send `Authorization: Bearer …` instead",
)


class PrintedToken:
    """The token that is printed at the start of a daemon without `auth`: nobody can guess it.

    Why a token, although MCP itself asks for nothing there: the console shows the calls of others, and a page elsewhere
    or another user of the machine can reach loopback, too.
    """

    def __init__(self, shared_keys: SigningKeys | None = None) -> None:
        """Make one; workers and replicas, which share their keys, make the same."""
        self.text: Final = secrets.token_urlsafe(_TOKEN_BYTES) if shared_keys is None else _derived(shared_keys()[0])

    @property
    def digest(self) -> str:
        """The digest of it that a cookie carries."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:32]

    def matches(self, given: str) -> bool:
        """Compare in constant time."""
        # errors: a lone surrogate, which JSON can bring, has no UTF-8.
        return hmac.compare_digest(self.text.encode(), given.encode(errors="replace"))


class ConsoleAccess:
    """The rules by which requests are let in."""

    def __init__(
        self,
        *,
        authenticator: Authenticator,
        scopes: Sequence[str],
        operators: frozenset[str],
        token: PrintedToken,
        cookies: SessionCookies,
    ) -> None:
        """Take the parts.

        Args:
            authenticator: knows the keys and tokens of `auth`.
            scopes: what a caller needs, where there is `auth`.
            operators: the scopes of operators, who may use the console as well.
            token: good where there is no `auth`.
            cookies: those of sign-ins.
        """
        self.authenticator: Final = authenticator
        self.token: Final = token
        self.cookies: Final = cookies
        self.failures: Final = FailedSignIns()
        self._scopes: Final = frozenset(scopes)
        self._operators: Final = operators

    def concerns(self, raw: web.Request, endpoint: ClientEndpoint) -> bool:
        """Tell whether a request says that it is of somebody who signed in, or of a page."""
        if "Sec-Fetch-Site" in raw.headers or cookie_name(endpoint) in raw.cookies:
            return True
        has_credential = "Authorization" in raw.headers or "X-API-Key" in raw.headers
        return has_credential and (not self.authenticator.is_open or self._has_token(raw))

    async def identify(self, request: HttpRequest) -> Identity | AuthError | HttpError:
        """Return who sends a request, with the scopes of now.

        1. a credential in a header field is good: 400, 401, and 429 after too many printed tokens that are not
        2. otherwise there is a cookie that is good here, and whose credential still is: 401
        3. with a cookie, the request is our page's own: 403
        4. the caller holds the scopes: 403
        """
        raw = request.raw
        if "Authorization" in raw.headers or "X-API-Key" in raw.headers:
            found = await self._by_header(request)
        else:
            found = self._by_cookie(request)
        return found if isinstance(found, AuthError | HttpError) else self.permitted(found)

    async def by_credential(self, text: str, *, address: str) -> Identity | AuthError | HttpError:
        """Return whom a key, an access token or the printed token is of.

        1. the printed token is good at any time: nobody finds it by trying
        2. the address has not failed too often: 429
        3. the credential is good: 400, 401
        """
        if self.authenticator.is_open and self.token.matches(text):
            return ANONYMOUS
        if (seconds := self.failures.seconds_to_wait(address)) is not None:
            message = "Too many sign-ins from this address have failed"
            return HttpError(status=429, message=message, headers={"Retry-After": str(seconds)})
        found = await self._credential(text)
        if isinstance(found, AuthError) and found.status in {400, 401}:
            self.failures.add(address)
        return found

    def permitted(self, identity: Identity) -> Identity | AuthError:
        """Return the identity if it is meant for the whole, and holds the scopes: 401, 403."""
        if not identity.may_enter(None):
            return invalid_token("The token is meant for a view of this server")
        if identity.holds(self._scopes) or identity.holds(self._operators):
            return identity
        return insufficient_scope(self._scopes)

    def is_own(self, request: HttpRequest) -> bool:
        """Tell whether the console's own page sends a request, as far as a browser says so."""
        fields = request.raw.headers
        site, origin = fields.get("Sec-Fetch-Site"), fields.get("Origin")
        # Fetch Metadata (W3C): `none` is what a user began, as with a bookmark; older browsers send nothing.
        if request.raw.method in _READ:
            return site in {None, "same-origin", "none"}
        return (
            fields.get(HEADER) == "1"
            and site in {None, "same-origin"}
            # Every browser sends Origin with what changes something (Fetch Standard): without one it is not ours.
            and origin is not None
            and origin_of(origin) in own_origins(request)
        )

    def session_of(self, identity: Identity, place: str) -> ConsoleSession:
        """Return what a cookie carries of somebody who signs in now."""
        expires_at = self.cookies.expiry(identity)
        if self.authenticator.is_open:
            return ConsoleSession(place=place, expires_at=expires_at, token=self.token.digest)
        # Without claims: a cookie has little space.
        return ConsoleSession(place=place, expires_at=expires_at, identity=replace(identity, claims={}))

    async def _by_header(self, request: HttpRequest) -> Identity | AuthError | HttpError:
        fields = request.raw.headers
        if self.authenticator.is_open:
            credential = _credential_of(request.raw)
            if not isinstance(credential, Credential):
                return credential or missing_credentials()
            return await self.by_credential(credential.secret, address=request.client_endpoint.address)
        return await self.authenticator.identify(
            authorization=fields.getall("Authorization", ()), api_key=fields.getall("X-API-Key", ())
        )

    async def _credential(self, text: str) -> Identity | AuthError:
        if not self.authenticator.is_open:
            return await self.authenticator.identify(authorization=[f"Bearer {text}"], api_key=())
        error = invalid_token("This is not the token of this daemon")
        self.authenticator.denied[error.status] += 1
        return error

    def of_cookie(self, request: HttpRequest) -> Identity | None:
        """Return who signed in with the browser of a request, whichever page has sent it."""
        session = self.cookies.read(request.raw, request.client_endpoint)
        return None if session is None else self._renewed(session)

    def _by_cookie(self, request: HttpRequest) -> Identity | AuthError | HttpError:
        identity = self.of_cookie(request)
        if identity is None:
            return missing_credentials()
        return identity if self.is_own(request) else _FOREIGN

    def _renewed(self, session: ConsoleSession) -> Identity | None:
        """Return who the session's holder is now; None if a reload has ended it, or the daemon that began it has."""
        if self.authenticator.is_open:
            # A cookie of the time when there was `auth` is not good without it, nor the other way round.
            is_good = session.identity is None and session.token == self.token.digest
            return ANONYMOUS if is_good else None
        return None if session.identity is None else self.authenticator.revalidate(session.identity)

    def _has_token(self, raw: web.Request) -> bool:
        credential = _credential_of(raw)
        return isinstance(credential, Credential) and self.token.matches(credential.secret)


class FailedSignIns:
    """Limits the failures of an address (of IPv6, a network): a key that a person chose is not found by trying."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._failures: Final[BoundedMap[str, tuple[int, float]]] = BoundedMap(_MAX_ADDRESSES, clock=clock)

    def seconds_to_wait(self, address: str) -> int | None:
        """Return how long an address may not try; None if it may."""
        found = self._failures.get(network_of(address))
        if found is None or found[0] < MAX_FAILURES:
            return None
        return max(1, round(found[1] - self._clock()))

    def add(self, address: str) -> None:
        """Note a failure."""
        key = network_of(address)
        count, end = self._failures.get(key) or (0, self._clock() + WINDOW_SECONDS)
        self._failures.put(key, (count + 1, end), expires=end)


def _credential_of(raw: web.Request) -> Credential | AuthError | None:
    fields = raw.headers
    return read_credential(authorization=fields.getall("Authorization", ()), api_key=fields.getall("X-API-Key", ()))


def _derived(key: bytes) -> str:
    # Derived and labelled: the token is printed, and must tell nothing about the key that session ids are signed with.
    return hmac.new(key, b"console token", hashlib.sha256).hexdigest()


def own_origins(request: HttpRequest) -> set[str]:
    """The origins under which this request's client may know us; `Host` has passed the guard."""
    endpoint = request.client_endpoint
    scheme, _, rest = endpoint.base_url.partition("://")
    direct = f"{request.raw.scheme}://{request.raw.host}"
    # Behind a proxy the page has the public URL's origin; on a direct connection it has that of `Host`.
    return {origin_of(f"{scheme}://{rest.partition('/')[0]}"), origin_of(direct)} - {""}
