"""Digests of lists as clients see them. A reload compares them to find the changed lists."""

import base64
import hashlib
from collections.abc import Iterable
from typing import Final

import orjson

from gateway import exact_json
from gateway.json_types import Json, JsonObject

_FINGERPRINT_BYTES: Final = 12
"""Kept short, because each session stores three and each cursor contains one."""


def fingerprint(digests: Iterable[bytes]) -> str:
    """Digest a list from the digests of its definitions."""
    digest = hashlib.sha256(b"".join(digests)).digest()[:_FINGERPRINT_BYTES]
    return base64.urlsafe_b64encode(digest).decode()


def definition_digest(definition: JsonObject) -> bytes:
    """Digest a definition as clients see it.

    The size and time of a file are left out: a changed file is an update for subscribers, not a changed list.
    """
    return hashlib.sha256(exact_json.dumps(_settled(definition), option=orjson.OPT_SORT_KEYS)).digest()


def content_digest(definition: JsonObject, content: str) -> bytes:
    """Digest a definition together with the digest of its content, so that every change changes the list."""
    return hashlib.sha256(definition_digest(definition) + content.encode()).digest()


def _settled(definition: JsonObject) -> dict[str, Json]:
    settled = {key: value for key, value in definition.items() if key != "size"}
    if "size" in definition:
        settled["annotations"] = {k: v for k, v in definition.get("annotations", {}).items() if k != "lastModified"}
    return settled
