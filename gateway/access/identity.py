"""Identities of callers, which are derived from credentials and never from the content of messages."""

from ipaddress import IPv6Address, IPv6Network
from typing import Final

import msgspec

from gateway.json_types import Json


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """An authenticated caller, or the anonymous caller."""

    principal: str | None = None
    """Name of the API key, or subject of the token. None for anonymous callers."""
    realm: str = ""
    """URL of the issuer, or `API_KEY_REALM`. Equal names in different realms belong to different principals."""
    scopes: frozenset[str] | None = None
    """None means all scopes."""
    credential: str = ""
    """Digest of the API key, or of the rules for access tokens. Sessions end when the digest changes."""
    views: frozenset[str] | None = None
    """Views that the credential grants access to. None means all views."""
    expires_at: float | None = None
    """Unix time at which the credential expires, or None."""
    claims: dict[str, Json] = {}
    roles: tuple[str, ...] = ()

    @property
    def subject_key(self) -> str | None:
        """Identifies the owner of sessions, tasks and outputs. None for anonymous callers."""
        return None if self.principal is None else f"{self.realm} {self.principal}"

    def may_enter(self, view: str | None) -> bool:
        """Whether the credential grants access to a view, or to the endpoint without views (None)."""
        return self.views is None or view in self.views

    def holds(self, scopes: frozenset[str]) -> bool:
        return self.scopes is None or scopes <= self.scopes


class Credential(msgspec.Struct, frozen=True):
    secret: str
    is_bearer: bool
    """Whether the secret was sent in the `Authorization` header. False for `X-API-Key`."""
    is_bound: bool = False

    def __repr__(self) -> str:
        """Omit the secret from tracebacks and logs."""
        return f"Credential(is_bearer={self.is_bearer})"


class Subject(msgspec.Struct, frozen=True):
    """The caller for whom the gateway sends requests to other servers."""

    key: str | None
    """`Identity.subject_key`. Anonymous callers have an empty key if they are local, and otherwise None."""
    access_token: Credential | None = None
    issuer: str = ""
    is_operator: bool = False
    is_calling: bool = True
    """Whether the caller made the request. False for background requests with the caller's credentials."""


API_KEY_REALM: Final = "api-key"
"""Realm of all API keys. The realm is not a URL, so it differs from all issuers."""
OPERATORS: Final = frozenset({"gateway:admin"})
ANONYMOUS: Final = Identity()
"""Caller of a daemon without `auth`."""
UNAUTHENTICATED: Final = Identity(scopes=frozenset())
"""Caller of paths without authentication."""


def network_of(address: str) -> str:
    """Return the address for rate limits: an IPv4 address unchanged, or the /64 network of an IPv6 address."""
    if ":" not in address:
        return address
    try:
        # RFC 4007 §11: a zone can follow the address, as in fe80::1%eth0.
        parsed = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    # Dual-stack sockets map IPv4 addresses to IPv6 addresses such as ::ffff:192.0.2.1, which share one /64 network.
    return str(parsed.ipv4_mapped or IPv6Network((int(parsed) >> 64 << 64, 64)))
