"""Reads bytes as their media type says: as JSON, as text of a charset, or as neither. Pure."""

import re
from functools import lru_cache
from typing import Final, Literal

from gateway.language.files.media_types import essence

OCTETS: Final = "application/octet-stream"
PLAIN_TEXT: Final = "text/plain"
JSON: Final = "application/json"

_TEXTUAL: Final = frozenset(
    {
        "application/ecmascript",
        "application/graphql",
        "application/javascript",
        "application/jsonl",
        "application/sql",
        "application/toml",
        "application/typescript",
        "application/x-ndjson",
        "application/x-sh",
        "application/x-www-form-urlencoded",
        "application/xml",
        "application/yaml",
        "application/x-yaml",
        "image/svg+xml",
        "message/rfc822",
    }
)
_CHARSET: Final = re.compile(r';\s*charset\s*=\s*"?([A-Za-z0-9._-]+)', re.IGNORECASE)
_CHARSETS: Final = {
    "iso-8859-1": "cp1252",  # as browsers read it: WHATWG Encoding, "Names and labels"
    "iso-8859-15": "iso8859-15",
    "us-ascii": "cp1252",
    "windows-1252": "cp1252",
    "utf-16": "utf-16",
    "utf-16be": "utf-16-be",
    "utf-16le": "utf-16-le",
}
"""Charsets that old servers still use; all else is read as UTF-8."""


@lru_cache(maxsize=64)  # a server says the same of each response
def form_of(media_type: str) -> Literal["json", "text", "image", "audio"] | None:
    """Say how bytes of this type are meant to be read; None where it does not tell."""
    kind = essence(media_type)
    if kind == JSON or kind.endswith("+json"):  # one JSON text (RFC 6839 §3.1)
        return "json"
    if kind.startswith("audio/"):
        return "audio"
    # Before images, because image/svg+xml is text.
    if kind.startswith("text/") or kind in _TEXTUAL or kind.endswith(("+xml", "+yaml")):
        return "text"
    return "image" if kind.startswith("image/") else None


def decoded(data: bytes, media_type: str | None = None) -> str:
    """Read text in the charset that the media type names, or UTF-8; what is not in it is replaced."""
    return data.decode("utf-8" if media_type is None else _charset_of(media_type), errors="replace")


@lru_cache(maxsize=64)
def _charset_of(media_type: str) -> str:
    named = _CHARSET.search(media_type)
    return _CHARSETS.get(named[1].lower(), "utf-8") if named else "utf-8"
