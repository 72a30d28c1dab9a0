"""Take out of a program's output what only a terminal understands."""

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
_PIECE: Final = 2**18
"""Characters that are cleaned at once, at the least."""


def clean(text: str) -> str:
    """Return `text` without terminal escapes and control characters, but for tab and newline. Takes linear time."""
    if len(text) <= _PIECE:
        return _cleaned(text)
    return "".join(map(_cleaned, _pieces(text)))


def _pieces(text: str) -> Iterator[str]:
    """Whole lines, over which no escape goes on. While the engine is at one, no other thread can run."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + _PIECE) + 1 or len(text)
        yield text[start:end]
        start = end


def _cleaned(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    return _CONTROL.sub("", _ESCAPE.sub("", text))
