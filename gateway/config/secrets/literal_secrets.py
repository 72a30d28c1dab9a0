"""Recognises secrets that are written directly in configuration files, by their key or form, and masks them."""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Final

from gateway.config.models.base import Model
from gateway.config.models.interpolated_text import MASK, shown
from gateway.config.models.quantities import duration_text
from gateway.json_types import DocumentPath, Json, JsonObject

SECRET_KEY: Final = re.compile(
    r"authorization|bearer|cookie|secret|sha256|passw|passphrase|token|credential|signature"
    r"|(api|access|private|auth|session)[-_]?key",
    re.IGNORECASE,
)
_NO_SECRETS: Final = frozenset({"authorization_code", "client_credentials", "token_exchange", "token_url"})
"""Keys that only look like secrets."""

TOKENS: Final = re.compile(
    r"\bgh[pousr]_[A-Za-z0-9]{30,}\b|\bgithub_pat_\w{40,}\b|\bglpat-[\w-]{20,}|\bxox[abeoprs]-[\w-]{10,}"
    r"|\bsk-(?:ant-|proj-|live-)?[\w-]{24,}|\b[rs]k_live_\w{16,}|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[\w-]{35}\b"
    r"|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
"""Pattern for API keys of well-known services, signed tokens and private keys."""
_MIN_TOKEN_LENGTH: Final = 15
"""Minimum characters of a token. Most strings are shorter, so they need not be searched."""
_RUN: Final = re.compile(r"[\w-]{10}")
"""Matches a part of every token, but rarely matches prose. Searching for this pattern first is faster."""

_USER_AND_PASSWORD: Final = re.compile(r"://[^/\s:@'\"{}]+:[^/\s@'\"{}$]{3,}@")
_SCHEME: Final = re.compile(r"(?:bearer|basic|token|digest)\s+", re.IGNORECASE)
_MIN_LENGTH: Final = 8
"""Minimum characters of a secret. Shorter values are usually words such as `none`."""

ADVICE: Final = "a secret in plain text: write `${env:NAME}` or `${file:/path}` instead"


@lru_cache(maxsize=4096)
def is_secret_key(key: str) -> bool:
    return SECRET_KEY.search(key) is not None and key not in _NO_SECRETS


def is_secret(value: str, path: Sequence[str | int], *, belongs_here: bool) -> bool:
    """Whether a string is a secret. `belongs_here` is true if the field is meant for secrets."""
    if len(value) >= _MIN_TOKEN_LENGTH and _RUN.search(value) is not None and TOKENS.search(value) is not None:
        return True
    if "://" in value and _USER_AND_PASSWORD.search(value) is not None:
        return True
    return belongs_here and _is_meant_as_secret(value, path)


def _is_meant_as_secret(value: str, path: Sequence[str | int]) -> bool:
    key = next((step for step in reversed(path) if isinstance(step, str)), "")
    # A digest in the file is safe, because it is not the secret itself.
    if not is_secret_key(key) or "sha256" in key:
        return False
    if key == "private_key" and "auth" in path:
        return False  # path of a key file; a key itself has been recognised by its form
    text = _SCHEME.sub("", value)
    return len(text) >= _MIN_LENGTH and "${" not in text and "{{" not in text


_HOMES_OF_SECRETS: Final = frozenset({"headers", "query", "env", "form", "json", "auth", "api_keys", "tls"})
"""Keys that can contain literal secrets."""


def masked_document(model: Model) -> JsonObject:
    """Return the keys that were set in the file, with secrets masked, in the order of the models' fields."""
    masked: JsonObject = _masked(model.model_dump(by_alias=True, exclude_unset=True), ())
    return masked


def _masked(value: object, path: DocumentPath) -> Json:
    match value:
        case Mapping():
            return {str(key): _masked(member, (*path, str(key))) for key, member in value.items()}
        case list() | tuple():
            return [_masked(item, (*path, index)) for index, item in enumerate(value)]
        case timedelta():
            return duration_text(value)
        case str():
            return _text(value, path)
        case None | bool() | int() | float():
            return value
        case _:
            return str(value)


def _text(text: str, path: DocumentPath) -> str:
    # Mask known secrets first, then text that looks like a secret.
    masked = shown(text)
    if is_secret(masked, path, belongs_here=not _HOMES_OF_SECRETS.isdisjoint(path)):
        return MASK
    return TOKENS.sub(MASK, masked)
