"""Digests of what clients would list, by which a reload knows which lists have changed. Pure."""

import base64
import hashlib
from collections.abc import Iterable
from typing import Final

import orjson

from gateway import exact_json
from gateway.json_types import Json, JsonObject

_FINGERPRINT_BYTES: Final = 12
"""Three of these are kept for each session, and one is in each cursor."""


def fingerprint(digests: Iterable[bytes]) -> str:
    """Digest a list, given the digests of its definitions in order."""
    digest = hashlib.sha256(b"".join(digests)).digest()[:_FINGERPRINT_BYTES]
    return base64.urlsafe_b64encode(digest).decode()


def definition_digest(definition: JsonObject) -> bytes:
    """Digest what a client sees of a primitive.

    Size and time of a file are left out: a written file is an update for its subscribers, not another list.
    """
    return hashlib.sha256(exact_json.dumps(_settled(definition), option=orjson.OPT_SORT_KEYS)).digest()


def content_digest(definition: JsonObject, content: str) -> bytes:
    """Digest what a client sees of a primitive whose every change is announced, given the digest of its content."""
    return hashlib.sha256(definition_digest(definition) + content.encode()).digest()


def _settled(definition: JsonObject) -> dict[str, Json]:
    settled = {key: value for key, value in definition.items() if key != "size"}
    if "size" in definition:
        settled["annotations"] = {k: v for k, v in definition.get("annotations", {}).items() if k != "lastModified"}
    return settled
