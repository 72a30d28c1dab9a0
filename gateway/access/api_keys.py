"""API keys: who holds the one that was sent.

Threat answered here: a key guessed byte by byte from how long a comparison takes. What is compared are digests, each
with every one that is known, in constant time.
"""

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from typing import Final

from gateway.access.identity import Identity
from gateway.config.auth import SHORTEST_KEY, ApiKey
from gateway.config.problems import Problems

REALM: Final = "api-key"
"""Who vouches for the holders of keys: the file. No issuer is called so, for issuers are URLs."""
_SHOWN_DIGITS: Final = 16


class ApiKeys:
    """All of them."""

    def __init__(self, keys: Mapping[str, ApiKey]) -> None:
        self._holders: Final = tuple(
            (bytes.fromhex(digest), _identity(name, key, digest))
            for name, key in keys.items()
            for digest in digests(key)
        )

    def find(self, secret: str) -> Identity | None:
        """The holder of a key."""
        given = hashlib.sha256(secret.encode()).digest()
        holder = None
        for digest, identity in self._holders:  # all of them: where the search ended would tell
            if hmac.compare_digest(digest, given):
                holder = identity
        return holder

    def renewed(self, identity: Identity) -> Identity | None:
        """What the same key allows now; None if it is gone, or somebody else's."""
        return next((holder for _, holder in self._holders if _is_same(holder, identity)), None)


def digests(key: ApiKey) -> Iterator[str]:
    """The SHA-256 of each of a holder's keys, in hexadecimal."""
    yield from (hashlib.sha256(secret.encode()).hexdigest() for secret in key.secret)
    yield from key.sha256


def check_api_keys(keys: Mapping[str, ApiKey], problems: Problems) -> None:
    """Report what a look at one key alone does not show, and keys that can be guessed."""
    holders: dict[str, str] = {}
    for name, key in keys.items():
        for digest in dict.fromkeys(digests(key)):
            first = holders.setdefault(digest, name)
            if first != name:
                problems.at(name).error(f"has the same key as `{first}`, so that nobody could tell them apart")
        if any(len(secret) < SHORTEST_KEY for secret in key.secret):
            message = (
                f"a key of less than {SHORTEST_KEY} characters can be guessed; make one with `openssl rand -hex 32`"
            )
            problems.at(name, "secret").warning(message)


def _identity(name: str, key: ApiKey, digest: str) -> Identity:
    return Identity(principal=name, realm=REALM, scopes=frozenset(key.scopes), credential=digest[:_SHOWN_DIGITS])


def _is_same(one: Identity, other: Identity) -> bool:
    return (one.owner, one.credential) == (other.owner, other.credential)
