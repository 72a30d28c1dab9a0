"""A cache of access tokens whose signatures were verified, so that the next request with one verifies none.

Keyed by digest. An entry holds the identity and the version of the key set that verified it: a token is verified again
once the issuer's keys were fetched again, and forgotten when it expires.
"""

import hashlib
import time
from collections.abc import Callable
from typing import Final

from gateway.access.identity.identity import Identity
from gateway.bounded_map import BoundedMap

MAX_TOKENS: Final = 4096


class TokenCache:
    """Tokens of one issuer, verified by one set of rules."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._verified: Final[BoundedMap[bytes, tuple[int, Identity]]] = BoundedMap(MAX_TOKENS, clock=clock)

    def __len__(self) -> int:
        return len(self._verified)

    def find(self, token: str, *, keys_version: int) -> Identity | None:
        """Return whom a token identifies, if these keys verified it and it has not expired."""
        digest = _digest(token)
        version, identity = self._verified.get(digest) or (keys_version, None)
        if version != keys_version:
            self._verified.discard(digest)
            return None
        return identity

    def remember(self, token: str, identity: Identity, *, keys_version: int) -> None:
        self._verified.put(_digest(token), (keys_version, identity), expires=identity.expires_at or 0)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
