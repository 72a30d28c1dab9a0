"""Digests of definitions: as they are written, and as data."""

import hashlib
import json
import pickle
from typing import Final

from gateway.json_types import Json

_KEY_BYTES: Final = 16


def content_key(*values: object) -> bytes:
    """Return a digest of plain data or models that differs wherever they do.

    The values are pickled, and never unpickled, because equality would confuse interpolated text with plain text, and
    1 with true.
    """
    return hashlib.blake2b(pickle.dumps(values), digest_size=_KEY_BYTES).digest()


def digest_of_written(value: Json, directory: str) -> str:
    """Return a digest of a definition as it is written in a file of `directory`, where its relative paths begin."""
    return digest_of_json([value, directory])


def digest_of_json(value: Json) -> str:
    # Lock files keep the digest: another form, even of a space, would change all of them.
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
