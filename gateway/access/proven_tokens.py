"""Access tokens that were proven good, so that the next request with one costs no signature.

Held by digest, each with what it said and the set of keys that it was proven with: it is proven anew when the issuer's
keys were got again, and forgotten when it expires. In memory, and no more than so many: the least used goes first.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from gateway.access.identity import Identity

MOST: Final = 4096


class ProvenTokens:
    """Those of one set of rules."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock: Final = clock
        self._known: Final[OrderedDict[bytes, tuple[int, Identity]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def find(self, token: str, *, keys_version: int) -> Identity | None:
        """Whom a token was made for, if that was proven with these keys and it has not expired."""
        digest = _digest(token)
        version, identity = self._known.get(digest, (-1, None))
        if identity is None:
            return None
        if version != keys_version or (identity.expires_at or 0) <= self._clock():
            del self._known[digest]
            return None
        self._known.move_to_end(digest)
        return identity

    def remember(self, token: str, identity: Identity, *, keys_version: int) -> None:
        self._known[_digest(token)] = keys_version, identity
        if len(self._known) > MOST:
            self._known.popitem(last=False)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
