"""Session ids that carry what `initialize` said, signed, so that every process with the key can serve the session.

2025-11-25 basic/transports, "Session Management": visible ASCII, globally unique, cryptographically secure. Clients can
read what is in them: nothing is secret, and never a token.
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
"""Bytes of an owner that is carried as it is; of a longer one there is a digest."""
_MAX_NAME, _MAX_VERSION = 64, 32
"""Bytes of the client's name and version."""
_FEATURES: Final = {"roots": ("listChanged",), "sampling": ("tools", "context"), "elicitation": ("form", "url")}
"""Capabilities that a server looks at."""


class SessionClaims(msgspec.Struct, frozen=True, array_like=True):
    """The content of an id."""

    nonce: str
    issued_at: int
    """Seconds since the epoch."""
    owner: str | None
    """The issuer and the subject, or the name of a key: see `owner_mark`; None for anonymous callers."""
    revision: str
    capabilities: dict[str, Json]
    client_name: str
    client_version: str
    view: str | None = None
    """The view that it was opened at; None: the whole."""


class SessionIds:
    """Makes ids, and reads those that one of the keys has signed."""

    def __init__(self, keys: SigningKeys, *, clock: Callable[[], float]) -> None:
        self._tokens: Final = SignedTokens(keys, SessionClaims, purpose="session-id")
        self._clock: Final = clock

    def issue(self, session: Session) -> SessionClaims:
        """Give a session its id, and return what it carries."""
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        given, known = session.capabilities, _known(session.capabilities)
        # What the client declared is carried whole if it fits, and otherwise less and less of it.
        for capabilities, most in ((given, 1), (known, 1), (known, 2), ({}, 4)):
            claims = SessionClaims(
                nonce=nonce,
                issued_at=int(self._clock()),
                owner=owner_mark(session.identity.subject_key),
                revision=session.revision,
                capabilities=dict(capabilities),
                client_name=_cut(session.client_info.get("name"), _MAX_NAME // most),
                client_version=_cut(session.client_info.get("version"), _MAX_VERSION // most),
                view=session.view,
            )
            session.rename(self._tokens.sign(claims))
            if len(session.id) <= MAX_BYTES:
                break
        return claims

    def read(self, session_id: str) -> SessionClaims | None:
        """Return what an id carries; None if it is none of ours."""
        return self._tokens.read(session_id) if len(session_id) <= MAX_BYTES else None


def owner_mark(subject_key: str | None) -> str | None:
    """The owner as an id carries it."""
    if subject_key is None or len(orjson.dumps(subject_key)) <= _MAX_OWNER:
        return subject_key
    return f"sha256:{hashlib.sha256(subject_key.encode()).hexdigest()}"


def _known(capabilities: JsonObject) -> dict[str, Json]:
    """The capabilities without what no server looks at: experiments, extensions, settings."""
    known: dict[str, Json] = {}
    for name, features in _FEATURES.items():
        declared = capabilities.get(name)
        if isinstance(declared, dict):
            known[name] = {each: declared[each] is True or {} for each in features if each in declared}
    return known


def _cut(value: Json, most: int) -> str:
    """The beginning of a text, which takes so many bytes as JSON at the most."""
    text = value[:most] if isinstance(value, str) else ""
    while len(orjson.dumps(text)) > most:
        text = text[:-1]
    return text
