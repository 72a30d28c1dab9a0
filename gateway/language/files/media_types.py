"""Media types of files by their names, and names by media types. Pure; the same on every machine.

Why a table of our own: Python's `mimetypes` reads the system's files, so that `.md` is unknown on one machine and
`.wav` is `audio/x-wav` on another.
"""

from functools import lru_cache
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


@lru_cache(maxsize=64)  # a server says the same of each response
def essence(media_type: str | None) -> str:
    """Return the type without its parameters, in lower case; empty if there is none."""
    return (media_type or "").partition(";")[0].strip().lower()
