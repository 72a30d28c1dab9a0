"""Divides a text file into front matter, which stands between two lines of `---`, and what follows."""

import re
from typing import Final

import msgspec

from gateway.config.reading.source_file import SourceFile

_FENCE: Final = re.compile(r"---[ \t]*(?:\r\n|\n|\Z)")
_CLOSING_FENCE: Final = re.compile(r"^---[ \t]*(?:\r\n|\n|\Z)", re.MULTILINE)

UNCLOSED: Final = "the front matter that starts here is not closed by `---`"


class FrontMatter(msgspec.Struct, frozen=True):
    """The place of the front matter in a file."""

    text: str
    """What stands between the fences, from the second line on."""
    body_start: int
    """The index of the first character after it."""
    is_closed: bool = True


def front_matter(source: SourceFile) -> FrontMatter | None:
    """Find the front matter; None if the file does not begin with a fence."""
    text = source.text
    opening = _FENCE.match(text)
    if opening is None:
        return None
    closing = _CLOSING_FENCE.search(text, opening.end())
    if closing is None:
        return FrontMatter("", len(text), is_closed=False)
    return FrontMatter(text[opening.end() : closing.start()], closing.end())
