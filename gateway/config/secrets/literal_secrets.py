"""Recognises secrets that were written into the file itself, by their key or by their own form. Pure.

A file is shared, reviewed and kept in version control; a secret belongs in the environment or a file of its own.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

SECRET_KEY: Final = re.compile(
    r"authorization|bearer|cookie|secret|sha256|passw|passphrase|token|credential|signature"
    r"|(api|access|private|auth|session)[-_]?key",
    re.IGNORECASE,
)
_NO_SECRETS: Final = frozenset({"client_credentials", "token_exchange", "token_url"})
"""Keys of the language that hold no secret themselves, though they look so."""

TOKENS: Final = re.compile(
    r"\bgh[pousr]_[A-Za-z0-9]{30,}\b|\bgithub_pat_\w{40,}\b|\bglpat-[\w-]{20,}|\bxox[abeoprs]-[\w-]{10,}"
    r"|\bsk-(?:ant-|proj-|live-)?[\w-]{24,}|\b[rs]k_live_\w{16,}|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[\w-]{35}\b"
    r"|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
"""Keys of well-known services, signed tokens and private keys, by the form that their issuers gave them."""
_MIN_TOKEN_LENGTH: Final = 15
"""Characters of the shortest of them: most texts of a file are shorter."""
_RUN: Final = re.compile(r"[\w-]{10}")
"""A run of characters as each of them has one: most prose has none, and to search for tokens takes longer."""

_USER_AND_PASSWORD: Final = re.compile(r"://[^/\s:@'\"{}]+:[^/\s@'\"{}$]{3,}@")
_SCHEME: Final = re.compile(r"(?:bearer|basic|token|digest)\s+", re.IGNORECASE)
_MIN_LENGTH: Final = 8
"""Characters. What is shorter is a word such as `none`."""

ADVICE: Final = "a secret in plain text: write `${env:NAME}` or `${file:/path}` instead"


@lru_cache(maxsize=4096)
def is_secret_key(key: str) -> bool:
    """Whether what stands at a key is a secret, by the key's name."""
    return SECRET_KEY.search(key) is not None and key not in _NO_SECRETS


def is_secret(value: str, path: Sequence[str | int], *, belongs_here: bool) -> bool:
    """Whether text of the file is a secret. `belongs_here`: whether secrets stand in places of this kind at all."""
    if len(value) >= _MIN_TOKEN_LENGTH and _RUN.search(value) is not None and TOKENS.search(value) is not None:
        return True
    if "://" in value and _USER_AND_PASSWORD.search(value) is not None:
        return True
    return belongs_here and _is_meant_as_secret(value, path)


def _is_meant_as_secret(value: str, path: Sequence[str | int]) -> bool:
    key = next((step for step in reversed(path) if isinstance(step, str)), "")
    # A digest is written into the file in place of the secret; it is masked all the same, by its key.
    if not is_secret_key(key) or "sha256" in key:
        return False
    if key == "private_key" and "auth" in path:
        return False  # the path of one, for it would have been told by its form
    text = _SCHEME.sub("", value)
    return len(text) >= _MIN_LENGTH and "${" not in text and "{{" not in text
