"""Takes out of text what only a terminal understands, or shows what a person would not see."""

import re
from collections.abc import Iterator
from typing import Final

_ESCAPE: Final = re.compile(
    # ECMA-48: control strings (OSC, DCS, SOS, PM, APC) up to their terminator, or to where one that has none must end;
    # control sequences (CSI); and two-character escapes. No alternative can begin within another's repetition.
    "(?:\x1b[\\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)?"
    "|(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]?"
    "|\x1b[ -/]*[0-~]?"
)
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""C0 and C1 controls but tab and newline."""
# CVE-2021-42574: controls of direction show a text in another order than it has. Tags (U+E0000) show nothing at all.
_DECEPTIVE: Final = re.compile(
    # Controls but tab and newline, the soft hyphen, zero-width characters but joiners, and what directs text (UAX #9)
    # or ends lines.
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
_BREAK: Final = re.compile("[\t\n]")
_PIECE: Final = 2**18
"""Characters that are cleaned at once, at the least."""


def strip_control_characters(text: str) -> str:
    """Return `text` without terminal escapes and control characters, but for tab and newline. Takes linear time."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_cleaned, _pieces(text)))


def with_newlines(text: str) -> str:
    """Return `text` in which a carriage return ends a line, as it does for a progress bar or in a file of Windows."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def visible(text: str, *, has_lines: bool) -> str:
    """Return `text` with escapes for characters that show a person something else than is there.

    `has_lines`: whether tab and newline stay as they are.
    """
    shown = _DECEPTIVE.sub(_escaped, text)
    return shown if has_lines else _BREAK.sub(_escaped, shown)


def visible_path(path: str) -> str:
    """Return a path as text for JSON and for people: a file name may hold any bytes but two, control characters too."""
    return visible(path.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), has_lines=False)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _pieces(text: str) -> Iterator[str]:
    """Whole lines, over which no escape goes on. While the engine is at one, no other thread can run."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + _PIECE) + 1 or len(text)
        yield text[start:end]
        start = end


def _cleaned(text: str) -> str:
    """Without them; most text has none, and each escape begins with one."""
    return text if _CONTROL.search(text) is None else _CONTROL.sub("", _ESCAPE.sub("", text))
