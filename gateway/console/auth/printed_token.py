"""The token that is printed at the start of a daemon without `auth`.

Why a token, although MCP itself asks for nothing there: the console shows the calls of others, and a page elsewhere or
another user of the machine can reach loopback, too.
"""

import hashlib
import hmac
import secrets
from typing import Final

from gateway.state.keys import SigningKeys

_BYTES: Final = 32


class PrintedToken:
    """A token that nobody can guess."""

    def __init__(self, shared_keys: SigningKeys | None = None) -> None:
        """Make one; workers and replicas, which share their keys, make the same."""
        self.text: Final = secrets.token_urlsafe(_BYTES) if shared_keys is None else _derived(shared_keys()[0])

    @property
    def digest(self) -> str:
        """The digest of it that a cookie carries."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:32]

    def matches(self, given: str) -> bool:
        """Compare in constant time."""
        return hmac.compare_digest(self.text.encode(), given.encode(errors="replace"))


def _derived(key: bytes) -> str:
    return hmac.new(key, b"console token", hashlib.sha256).hexdigest()
