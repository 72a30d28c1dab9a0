"""Digests of definitions, as written and as data."""

import hashlib
import json
import pickle
from typing import Final

from gateway.json_types import Json

_KEY_BYTES: Final = 16


def content_key(*values: object) -> bytes:
    """Return a digest of plain data or models.

    The values are pickled and never unpickled. Comparing them would confuse interpolated text with plain text, and 1
    with true.
    """
    return hashlib.blake2b(pickle.dumps(values), digest_size=_KEY_BYTES).digest()


def digest_of_written(value: Json, directory: str) -> str:
    """Return a digest of a definition as written in a file of `directory`, which its relative paths start from."""
    return digest_of_json([value, directory])


def digest_of_json(value: Json) -> str:
    # Lock files contain this digest, so its input must never change, not even in whitespace.
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
