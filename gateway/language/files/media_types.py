"""Detects media types from file names and signatures (WHATWG MIME Sniffing §6).

The module-level functions of `mimetypes` read system files, so their results differ between machines.
"""

import re
from functools import cache, lru_cache
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
"""Maps suffixes to media types that Python 3.11 lacks or calls by an old name (RFC 9239, RFC 9512, RFC 9649)."""


@cache  # lazy, because the first instance in a process is slow
def _python_types() -> MimeTypes:
    """Return Python's built-in table, without the types in system files."""
    return MimeTypes()


def media_type_of(path: str | PurePath) -> str | None:
    suffix = PurePath(path).suffix.lower()
    if known := _BY_SUFFIX.get(suffix):
        return known
    guess, encoding = _python_types().guess_type(f"file{suffix}")
    return "application/gzip" if encoding == "gzip" else guess


def suffix_of(media_type: str | None) -> str:
    """Return the usual file name suffix including the dot, or an empty string."""
    kind = essence(media_type)
    ours = next((suffix for suffix, known in _BY_SUFFIX.items() if known == kind), None)
    # Search Python's table first: `text/plain` is usually `.txt`, which `_BY_SUFFIX` does not contain.
    return _python_types().guess_extension(kind) or ours or ""


@lru_cache(maxsize=64)
def essence(media_type: str | None) -> str:
    """Return a media type in lower case without parameters, or an empty string."""
    return (media_type or "").partition(";")[0].strip().lower()


_SIGNATURES: Final = (
    ("image/png", rb"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", rb"\xff\xd8\xff"),
    ("image/gif", rb"GIF8[79]a"),
    ("image/webp", rb"RIFF....WEBPVP"),
    ("image/bmp", rb"BM.{4}\0\0\0\0"),
    ("image/tiff", rb"II\*\0|MM\0\*"),
    ("image/avif", rb"....ftypavi[fs]"),
    ("image/heic", rb"....ftyp(?:hei[cxms]|mif1)"),
    ("image/x-icon", rb"\0\0\x01\0"),
    ("audio/wav", rb"RIFF....WAVE"),
    ("audio/mpeg", rb"ID3|\xff[\xf2\xf3\xfb]"),
    ("audio/flac", rb"fLaC"),
    ("audio/mp4", rb"....ftypM4A "),
    ("video/mp4", rb"....ftyp(?:isom|iso[2-9]|mp4[12]|avc1|dash|M4V )"),
    ("video/quicktime", rb"....ftypqt  "),
    ("video/webm", rb"\x1aE\xdf\xa3"),
    ("application/ogg", rb"OggS\0"),
    ("application/pdf", rb"%PDF-"),
    ("application/gzip", rb"\x1f\x8b\x08"),
    ("application/zip", rb"PK(?:\x03\x04|\x05\x06|\x07\x08)"),
)

_BINARY: Final = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")


def media_type_in(data: bytes) -> str | None:
    """Return the media type whose signature the data starts with, or None."""
    return next((media_type for media_type, pattern in _SIGNATURES if re.match(pattern, data, re.DOTALL)), None)


def is_text(data: bytes) -> bool:
    """Whether the data is UTF-8 without binary data bytes (WHATWG MIME Sniffing §3)."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return _BINARY.search(data) is None
