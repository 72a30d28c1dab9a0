"""Signed session ids that contain the data of `initialize`, so that every process with the key can serve the session.

Ids are visible ASCII, globally unique and cryptographically secure (2025-11-25 basic/transports, "Session Management").
Clients can read the ids, so the ids contain no secrets or tokens.
"""

import hashlib
import secrets
from collections.abc import Callable
from typing import Final

import msgspec
import orjson

from gateway.json_types import Json, JsonObject
from gateway.protocol.session import Session
from gateway.state.keys import SignedTokens, SigningKeys

MAX_BYTES: Final = 512
_NONCE_BYTES: Final = 12
_MAX_OWNER: Final = 96
"""The maximum size of an owner in bytes. A longer owner is hashed."""
_MAX_NAME, _MAX_VERSION = 64, 32
_FEATURES: Final = {"roots": ("listChanged",), "sampling": ("tools", "context"), "elicitation": ("form", "url")}


class SessionClaims(msgspec.Struct, frozen=True, array_like=True):
    nonce: str
    issued_at: int
    owner: str | None
    """The `subject_key` of the caller's identity, or a hash of the key. None for anonymous callers."""
    revision: str
    capabilities: dict[str, Json]
    client_name: str
    client_version: str
    view: str | None = None
    """The view of the session. None for the whole catalog."""


class SessionIds:
    def __init__(self, keys: SigningKeys, *, clock: Callable[[], float]) -> None:
        self._tokens: Final = SignedTokens(keys, SessionClaims, purpose="session-id")
        self._clock: Final = clock

    def issue(self, session: Session) -> SessionClaims:
        """Sign a new id, assign the id to the session, and return the content of the id."""
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        given, known = session.capabilities, _known(session.capabilities)
        # Drop capabilities and shorten the client's name and version step by step until the id fits.
        for capabilities, most in ((given, 1), (known, 1), (known, 2), ({}, 4)):
            claims = SessionClaims(
                nonce=nonce,
                issued_at=int(self._clock()),
                owner=owner_mark(session.identity.subject_key),
                revision=session.revision,
                capabilities=dict(capabilities),
                client_name=_truncated(session.client_info.get("name"), _MAX_NAME // most),
                client_version=_truncated(session.client_info.get("version"), _MAX_VERSION // most),
                view=session.view,
            )
            session.rename(self._tokens.sign(claims))
            if len(session.id) <= MAX_BYTES:
                break
        return claims

    def read(self, session_id: str) -> SessionClaims | None:
        """Return the content of a session id, or None if the id is too long or the signature is invalid."""
        return self._tokens.read(session_id) if len(session_id) <= MAX_BYTES else None


def owner_mark(subject_key: str | None) -> str | None:
    if subject_key is None or len(orjson.dumps(subject_key)) <= _MAX_OWNER:
        return subject_key
    return f"sha256:{hashlib.sha256(subject_key.encode()).hexdigest()}"


def _known(capabilities: JsonObject) -> dict[str, Json]:
    """Return only the standard capabilities, without experiments, extensions and settings."""
    known: dict[str, Json] = {}
    for name, features in _FEATURES.items():
        declared = capabilities.get(name)
        if isinstance(declared, dict):
            known[name] = {each: declared[each] is True or {} for each in features if each in declared}
    return known


def _truncated(value: Json, max_bytes: int) -> str:
    """Truncate a string so that its JSON encoding has at most `max_bytes` bytes."""
    text = value[:max_bytes] if isinstance(value, str) else ""
    while len(orjson.dumps(text)) > max_bytes:
        text = text[:-1]
    return text
