"""The cookie of a browser that has signed in: what it carries, signed, so that every worker can read it.

Threats answered here, and only here:

- A cookie that was made up or changed: it is signed with the daemon's keys, and checked in constant time.
- A cookie that is taken to another listener, daemon or site: it names the listener's port and the URL under which it
  was given, and is good nowhere else. Browsers send cookies to every port of a host; hence also a name for each URL.
- A script that reads it (HttpOnly), a request of another site that carries it (SameSite=Strict), a network that reads
  or sets it (over https: Secure, and the prefix `__Host-`, RFC 6265bis §4.1.3).
- A cookie that is never given back: it expires.
"""

import hashlib
from collections.abc import Callable
from typing import Final

import msgspec
from aiohttp import web

from gateway.access.identity import Identity
from gateway.state.keys import SignedTokens, SigningKeys
from gateway.transports.http.forwarded import ClientEndpoint

HOURS: Final = 12
"""How long a sign-in lasts."""
_MAX_BYTES: Final = 4096
"""RFC 6265 §6.1: what browsers keep of a cookie."""


class ConsoleSession(msgspec.Struct, frozen=True, array_like=True):
    """The content of a cookie."""

    place: str
    """The listener and the URL that it was given for: see `place_of`."""
    expires_at: float
    """Unix time."""
    identity: Identity | None = None
    """Who signed in, by key or access token; None: whoever had the printed token."""
    token: str = ""
    """A digest of the printed token."""


class SessionCookies:
    """Writes and reads cookies."""

    def __init__(self, keys: SigningKeys, *, clock: Callable[[], float]) -> None:
        self._tokens: Final = SignedTokens(keys, ConsoleSession, purpose="console-session")
        self._clock: Final = clock

    def expiry(self, identity: Identity) -> float:
        """Return when a sign-in of now ends: no later than its credential."""
        end = self._clock() + HOURS * 3600
        return end if identity.expires_at is None else min(end, identity.expires_at)

    def give(self, session: ConsoleSession, *, endpoint: ClientEndpoint, response: web.StreamResponse) -> bool:
        """Put the cookie on a response; False if it is too large for browsers to keep."""
        value = self._tokens.sign(session)
        # RFC 6265 §6.1 counts the name and the attributes, too.
        if len(value) > _MAX_BYTES - 512:
            return False
        self._set(value, endpoint, response, seconds=int(session.expires_at - self._clock()))
        return True

    def take(self, *, endpoint: ClientEndpoint, response: web.StreamResponse) -> None:
        """Have the browser forget it."""
        self._set("", endpoint, response, seconds=0)

    def read(self, raw: web.Request, endpoint: ClientEndpoint) -> ConsoleSession | None:
        """Return what the cookie of a request carries; None if it has none that is good here and now."""
        value = raw.cookies.get(cookie_name(endpoint), "")
        session = self._tokens.read(value) if len(value) <= _MAX_BYTES else None
        if session is None or session.place != place_of(raw, endpoint):
            return None
        return session if session.expires_at > self._clock() else None

    def _set(self, value: str, endpoint: ClientEndpoint, response: web.StreamResponse, *, seconds: int) -> None:
        is_secure = _is_secure(endpoint)
        response.set_cookie(
            cookie_name(endpoint),
            value,
            max_age=seconds,
            # RFC 6265bis §4.1.3.2: `__Host-` needs the path /. A path with a semicolon would end the attribute.
            path="/" if is_secure or ";" in endpoint.prefix else f"{endpoint.prefix}/-/",
            secure=is_secure,
            httponly=True,
            samesite="Strict",
        )


def cookie_name(endpoint: ClientEndpoint) -> str:
    """Return a name of its own for each URL of a daemon: ports and prefixes of a host share their cookies."""
    digest = hashlib.sha256(endpoint.base_url.encode()).hexdigest()[:8]
    return f"{'__Host-' if _is_secure(endpoint) else ''}mcp-gateway-{digest}"


def place_of(raw: web.Request, endpoint: ClientEndpoint) -> str:
    """Return the place where a cookie is good: our listener, and the URL under which its client knows us."""
    socket_name = raw.get_extra_info("sockname")
    listener = socket_name[1] if isinstance(socket_name, tuple) else socket_name
    return f"{listener} {endpoint.base_url}"


def _is_secure(endpoint: ClientEndpoint) -> bool:
    return endpoint.base_url.startswith("https:")
