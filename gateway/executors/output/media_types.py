"""Media types: of a file by its name, and how bytes of a type are to be read. Pure; the same on every machine.

Why a table of our own: Python's `mimetypes` reads the system's files, so that `.md` is unknown on one machine and
`.wav` is `audio/x-wav` on another.
"""

import re
from mimetypes import MimeTypes
from pathlib import PurePath
from typing import Final

_BY_SUFFIX: Final = {
    ".adoc": "text/asciidoc",
    ".cfg": "text/plain",
    ".conf": "text/plain",
    ".flac": "audio/flac",
    ".go": "text/x-go",
    ".ini": "text/plain",
    ".ipynb": "application/x-ipynb+json",
    ".java": "text/x-java",
    ".js": "text/javascript",
    ".jsonl": "application/jsonl",
    ".log": "text/plain",
    ".m4a": "audio/mp4",
    ".markdown": "text/markdown",
    ".md": "text/markdown",
    ".mjs": "text/javascript",
    ".ndjson": "application/x-ndjson",
    ".oga": "audio/ogg",
    ".ogg": "audio/ogg",
    ".rs": "text/x-rust",
    ".rst": "text/x-rst",
    ".sh": "text/x-shellscript",
    ".sql": "application/sql",
    ".tex": "text/x-tex",
    ".toml": "application/toml",
    ".ts": "text/x-typescript",
    ".tsx": "text/x-typescript",
    ".wav": "audio/wav",
    ".webp": "image/webp",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}
"""Types that Python 3.11 does not know, or knows by an old name (RFC 9239, RFC 9512, RFC 9649)."""

_WITHOUT_SYSTEM_FILES: Final = MimeTypes()


def media_type_of(path: str | PurePath) -> str | None:
    """Say what kind of file this name promises; None if it promises nothing."""
    suffix = PurePath(path).suffix.lower()
    if known := _BY_SUFFIX.get(suffix):
        return known
    guess, encoding = _WITHOUT_SYSTEM_FILES.guess_type(f"file{suffix}")
    return "application/gzip" if encoding == "gzip" else guess


def suffix_of(media_type: str | None) -> str:
    """Return the usual suffix of names of such files, with its dot; empty if there is none."""
    kind = essence(media_type)
    ours = next((suffix for suffix, known in _BY_SUFFIX.items() if known == kind), None)
    return _WITHOUT_SYSTEM_FILES.guess_extension(kind) or ours or ""


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


def essence(media_type: str | None) -> str:
    """Return the type without its parameters, in lower case; empty if there is none."""
    return (media_type or "").partition(";")[0].strip().lower()


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
