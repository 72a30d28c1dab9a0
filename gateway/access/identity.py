"""Identities of callers and their scopes. Made from credentials, never from the content of a message."""

from ipaddress import IPv6Address, IPv6Network
from typing import Final

import msgspec

from gateway.json_types import Json


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """One authenticated caller, or the anonymous one."""

    principal: str | None = None
    """The key's name, or the token's subject; None if the caller is anonymous."""
    realm: str = ""
    """The source of the principal: the file's keys, or an issuer. The same name in two realms is two principals."""
    scopes: frozenset[str] | None = None
    """The granted scopes; None is every scope."""
    credential: str = ""
    """A digest that tells the principal's credentials apart, so that sessions end with the one that opened them."""
    views: frozenset[str] | None = None
    """The views that the credential is meant for; None is every view, and the whole."""
    expires_at: float | None = None
    """Unix time after which the identity is not valid."""
    claims: dict[str, Json] = {}
    """The claims of the verified token."""
    roles: tuple[str, ...] = ()
    """The roles or groups in the token, which may grant scopes (`auth.oauth.roles`)."""

    @property
    def subject_key(self) -> str | None:
        """The key of the owner of sessions, request states and stored outputs; None if the caller is anonymous."""
        return None if self.principal is None else f"{self.realm} {self.principal}"

    def may_enter(self, view: str | None) -> bool:
        """Whether the credential is meant for a view, or for the whole (None)."""
        return self.views is None or view in self.views

    def holds(self, scopes: frozenset[str]) -> bool:
        return self.scopes is None or scopes <= self.scopes


ANONYMOUS: Final = Identity()
"""The caller where no credential is required."""
UNAUTHENTICATED: Final = Identity(scopes=frozenset())
"""The caller of paths that do not authenticate."""


def network_of(address: str) -> str:
    """Return the key by which an address is counted: for IPv6 its /64 network, the least that a customer gets."""
    if ":" not in address:
        return address
    try:
        # RFC 4007 §11: a zone may follow the address, as in fe80::1%eth0.
        parsed = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    # A socket for both families shows IPv4 clients as ::ffff:192.0.2.1, all of them in one /64.
    return str(parsed.ipv4_mapped or IPv6Network((int(parsed) >> 64 << 64, 64)))
