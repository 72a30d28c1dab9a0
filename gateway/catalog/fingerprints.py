"""Digests of what clients would list, by which a reload knows which lists have changed. Pure."""

import hashlib
from collections.abc import Iterable

import orjson

from gateway.json_types import Json, JsonObject


def fingerprint(digests: Iterable[bytes]) -> str:
    """Digest a list, given the digests of its definitions in order."""
    return hashlib.sha256(b"".join(digests)).hexdigest()


def definition_digest(definition: JsonObject) -> bytes:
    """Digest what a client sees of a primitive.

    Size and time of a file are left out: a written file is an update for its subscribers, not another list.
    """
    return hashlib.sha256(orjson.dumps(_settled(definition), option=orjson.OPT_SORT_KEYS)).digest()


def content_digest(definition: JsonObject, content: str) -> bytes:
    """Digest what a client sees of a primitive whose every change is announced, given the digest of its content."""
    return hashlib.sha256(definition_digest(definition) + content.encode()).digest()


def _settled(definition: JsonObject) -> dict[str, Json]:
    settled = {key: value for key, value in definition.items() if key != "size"}
    if "size" in definition:
        settled["annotations"] = {k: v for k, v in definition.get("annotations", {}).items() if k != "lastModified"}
    return settled
