"""Identifies callers by API key.

Threat: timing attacks. Digests are compared in constant time.
"""

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from typing import Final

from gateway.access.identity import Identity
from gateway.config.diagnostics.problems import Problems
from gateway.config.models.auth import MIN_KEY_LENGTH, ApiKey

REALM: Final = "api-key"
"""Realm of all API keys. The realm is not a URL, so it differs from all issuers."""
_SHOWN_DIGITS: Final = 16


class ApiKeys:
    def __init__(self, keys: Mapping[str, ApiKey]) -> None:
        self._holders: Final = tuple(
            (bytes.fromhex(digest), _identity(name, key, digest))
            for name, key in keys.items()
            for digest in digests(key)
        )

    def find(self, secret: str) -> Identity | None:
        given = hashlib.sha256(secret.encode()).digest()
        holder = None
        for digest, identity in self._holders:  # no early exit, which would reveal the position
            if hmac.compare_digest(digest, given):
                holder = identity
        return holder

    def revalidate(self, identity: Identity) -> Identity | None:
        """Return the current identity for a caller's API key, or None if the key was removed or has another holder."""
        same = (identity.subject_key, identity.credential)
        return next((holder for _, holder in self._holders if (holder.subject_key, holder.credential) == same), None)


def digests(key: ApiKey) -> Iterator[str]:
    yield from (hashlib.sha256(secret.encode()).hexdigest() for secret in key.secret)
    yield from key.sha256


def check_api_keys(keys: Mapping[str, ApiKey], problems: Problems) -> None:
    holders: dict[str, str] = {}
    for name, key in keys.items():
        for digest in dict.fromkeys(digests(key)):
            first = holders.setdefault(digest, name)
            if first != name:
                problems.at(name).error(f"has the same key as `{first}`; each key must have one holder")
        if any(len(secret) < MIN_KEY_LENGTH for secret in key.secret):
            message = (
                f"keys of fewer than {MIN_KEY_LENGTH} characters can be guessed; create one with `openssl rand -hex 32`"
            )
            problems.at(name, "secret").warning(message)


def _identity(name: str, key: ApiKey, digest: str) -> Identity:
    return Identity(principal=name, realm=REALM, scopes=frozenset(key.scopes), credential=digest[:_SHOWN_DIGITS])
