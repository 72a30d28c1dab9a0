"""Removes terminal escapes from text, or escapes invisible characters."""

import re
from collections.abc import Iterator
from typing import Final

_ESCAPE: Final = re.compile(
    # ECMA-48: control strings (OSC, DCS, SOS, PM, APC) up to their terminator or the end of the line; control sequences
    # (CSI); and two-character escapes.
    "(?:\x1b[\\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)?"
    "|(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]?"
    "|\x1b[ -/]*[0-~]?"
)
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""C0 and C1 controls except tab and newline."""
# CVE-2021-42574: direction controls change the displayed order of text. Tag characters (U+E0000) are invisible.
_DECEPTIVE: Final = re.compile(
    # Controls except tab and newline, soft hyphens, zero-width characters except joiners, direction controls (UAX #9)
    # and line separators.
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
_BREAK: Final = re.compile("[\t\n]")
_PIECE: Final = 2**18


def strip_control_characters(text: str) -> str:
    """Remove terminal escapes and control characters except tab and newline, in linear time."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_cleaned, _pieces(text)))


def with_newlines(text: str) -> str:
    """Convert carriage returns to newlines."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def visible(text: str, *, has_lines: bool) -> str:
    """Escape invisible and misleading characters. With `has_lines`, keep tabs and newlines."""
    shown = _DECEPTIVE.sub(_escaped, text)
    return shown if has_lines else _BREAK.sub(_escaped, shown)


def visible_path(path: str) -> str:
    """Return a path as printable text."""
    return visible(path.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), has_lines=False)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _pieces(text: str) -> Iterator[str]:
    """Split text into groups of lines, because `re` blocks other threads (GIL) while it searches a string."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + _PIECE) + 1 or len(text)
        yield text[start:end]
        start = end


def _cleaned(text: str) -> str:
    return text if _CONTROL.search(text) is None else _CONTROL.sub("", _ESCAPE.sub("", text))
