"""Splits a text file into front matter, between two lines of `---`, and body."""

import re
from typing import Final

import msgspec

from gateway.config.reading.source_file import SourceFile

_FENCE: Final = re.compile(r"---[ \t]*(?:\r\n|\n|\Z)")
_CLOSING_FENCE: Final = re.compile(r"^---[ \t]*(?:\r\n|\n|\Z)", re.MULTILINE)

UNCLOSED: Final = "the front matter that starts here is not closed by `---`"


class FrontMatter(msgspec.Struct, frozen=True):
    """The front matter of a file."""

    text: str
    """Text between the fences, starting at the second line of the file."""
    body_start: int
    """Index of the first character after the front matter."""
    is_closed: bool = True


def front_matter(source: SourceFile) -> FrontMatter | None:
    """Return the front matter, or None if the file does not start with a fence."""
    text = source.text
    opening = _FENCE.match(text)
    if opening is None:
        return None
    closing = _CLOSING_FENCE.search(text, opening.end())
    if closing is None:
        return FrontMatter("", len(text), is_closed=False)
    return FrontMatter(text[opening.end() : closing.start()], closing.end())
