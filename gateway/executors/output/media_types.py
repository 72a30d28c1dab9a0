"""Reads bytes as their media type says: as JSON, as text of a charset, or as neither. Pure."""

import re
from typing import Final

from gateway.language.files.media_types import essence

OCTETS: Final = "application/octet-stream"
PLAIN_TEXT: Final = "text/plain"
JSON: Final = "application/json"

_TEXTUAL: Final = frozenset(
    {
        "application/ecmascript",
        "application/graphql",
        "application/javascript",
        "application/json",
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


def is_json(media_type: str | None) -> bool:
    """Whether it is JSON, or a format made of one JSON text (RFC 6839 §3.1)."""
    kind = essence(media_type)
    return kind == JSON or kind.endswith("+json")


def is_textual(media_type: str | None) -> bool:
    """Whether bytes of this type are meant to be read as text."""
    kind = essence(media_type)
    return kind.startswith("text/") or kind in _TEXTUAL or kind.endswith(("+json", "+xml", "+yaml"))


def decoded(data: bytes, media_type: str | None = None) -> str:
    """Read text in the charset that the media type names, or UTF-8; what is not in it is replaced."""
    named = _CHARSET.search(media_type or "")
    return data.decode(_CHARSETS.get(named[1].lower(), "utf-8") if named else "utf-8", errors="replace")
