"""The signed cookie of a signed-in browser, which every worker can read.

Threats handled here, and only here:

- Forged cookies: cookies are signed with the daemon's keys, and signatures are compared in constant time.
- Cookies sent to another listener or site: a cookie names the port of its listener and the URL of the daemon, because
  browsers send cookies to every port of a host.
- Stolen cookies: HttpOnly, SameSite=Strict and, over https, Secure with the prefix `__Host-` (RFC 6265bis §4.1.3).
- Old cookies: every cookie expires.
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
_MAX_BYTES: Final = 4096
"""The cookie size that every browser must support (RFC 6265 §6.1)."""


class ConsoleSession(msgspec.Struct, frozen=True, array_like=True):
    place: str
    """The listener and the URL for which the cookie is valid. See `place_of`."""
    expires_at: float
    """The expiry time in Unix seconds."""
    identity: Identity | None = None
    """The identity of the API key or access token, or None for a sign-in with the printed token."""
    token: str = ""


class SessionCookies:
    def __init__(self, keys: SigningKeys, *, clock: Callable[[], float]) -> None:
        self._tokens: Final = SignedTokens(keys, ConsoleSession, purpose="console-session")
        self._clock: Final = clock

    def expiry(self, identity: Identity) -> float:
        end = self._clock() + HOURS * 3600
        return end if identity.expires_at is None else min(end, identity.expires_at)

    def give(self, session: ConsoleSession, *, endpoint: ClientEndpoint, response: web.StreamResponse) -> bool:
        """Set the cookie on a response. Return False if the cookie is too large for browsers."""
        value = self._tokens.sign(session)
        # The size in RFC 6265 §6.1 includes the name and attributes, so reserve 512 bytes for both.
        if len(value) > _MAX_BYTES - 512:
            return False
        self._set(value, endpoint, response, seconds=int(session.expires_at - self._clock()))
        return True

    def take(self, *, endpoint: ClientEndpoint, response: web.StreamResponse) -> None:
        self._set("", endpoint, response, seconds=0)

    def read(self, raw: web.Request, endpoint: ClientEndpoint) -> ConsoleSession | None:
        """Return the content of a request's cookie, or None if the cookie is missing or not valid."""
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
            # RFC 6265bis §4.1.3.2: `__Host-` requires the path /. A semicolon in the path would end the attribute.
            path="/" if is_secure or ";" in endpoint.prefix else f"{endpoint.prefix}/-/",
            secure=is_secure,
            httponly=True,
            samesite="Strict",
        )


def cookie_name(endpoint: ClientEndpoint) -> str:
    """Return a cookie name that is unique to the daemon's URL, because all ports of a host share their cookies."""
    digest = hashlib.sha256(endpoint.base_url.encode()).hexdigest()[:8]
    return f"{'__Host-' if _is_secure(endpoint) else ''}mcp-gateway-{digest}"


def place_of(raw: web.Request, endpoint: ClientEndpoint) -> str:
    """Return the listener's port or socket, and the client's URL of the daemon. A cookie is only valid for both."""
    socket_name = raw.get_extra_info("sockname")
    listener = socket_name[1] if isinstance(socket_name, tuple) else socket_name
    return f"{listener} {endpoint.base_url}"


def _is_secure(endpoint: ClientEndpoint) -> bool:
    return endpoint.base_url.startswith("https:")
