"""Who a caller has shown to be, and what that allows. Made from credentials, never from what a message says."""

from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One authenticated caller, or anybody where nobody has to authenticate."""

    principal: str | None = None
    """The key's name, or the token's subject; None where nobody has to authenticate."""
    realm: str = ""
    """Who vouches for the principal: the file's keys, or an issuer. The same name in two realms is two principals."""
    scopes: frozenset[str] | None = None
    """What was granted; None is every scope."""
    credential: str = ""
    """Tells the principal's credentials apart, so that the end of one ends what it opened. Reveals nothing of it."""
    expires_at: float | None = None
    """Unix time after which it says nothing any more."""

    @property
    def owner(self) -> str | None:
        """Whom sessions, states and parked outputs belong to."""
        return None if self.principal is None else f"{self.realm} {self.principal}"

    def holds(self, scopes: frozenset[str]) -> bool:
        return self.scopes is None or scopes <= self.scopes


ANYBODY: Final = Identity()
"""Who calls where nobody has to authenticate."""
NOBODY: Final = Identity(scopes=frozenset())
"""Who calls where it was not asked."""


def network_of(address: str) -> str:
    """Whom an address stands for where callers are counted: of IPv6 the /64 network, the least that a customer gets."""
    if ":" not in address:
        return address
    try:
        parsed = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(parsed.ipv4_mapped or IPv6Network((int(parsed) >> 64 << 64, 64)))
