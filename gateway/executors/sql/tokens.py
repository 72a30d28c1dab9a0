"""Splits SQL into tokens, as far as needed to find parameters.

A colon in quoted text, a quoted name, a comment or a cast (`::`) does not start a parameter.
"""

import re
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import Final

import msgspec

from gateway.executors.sql.dialects import Dialect


class Kind(Enum):
    WORD = auto()
    """A keyword or a name."""
    PARAMETER = auto()
    """`:name`. The text of the token is the name."""
    POSITION = auto()
    """A numbered parameter of the database: `$1`, `?`."""
    QUOTED = auto()
    """Quoted text or a quoted name."""
    COMMENT = auto()
    SPACE = auto()
    OTHER = auto()
    """Operators, punctuation and numbers."""


class Token(msgspec.Struct, frozen=True):
    kind: Kind
    text: str
    start: int
    """Offset in characters."""
    end: int


class UnclosedTokenError(Exception):
    """A quote or a comment that begins at `start` is not closed."""

    def __init__(self, message: str, start: int) -> None:
        super().__init__(message)
        self.start = start


_COMMENT_MARK: Final = re.compile(r"/\*|\*/")
_KINDS: Final[Mapping[str, Kind]] = {
    "space": Kind.SPACE,
    "comment": Kind.COMMENT,
    "block": Kind.COMMENT,
    "dollar": Kind.QUOTED,
    "quoted": Kind.QUOTED,
    "position": Kind.POSITION,
    "parameter": Kind.PARAMETER,
    "word": Kind.WORD,
    "other": Kind.OTHER,
}
_UNCLOSED: Final[Mapping[str, str]] = {"'": "quoted text", '"': "a quoted name", "`": "a quoted name"}


def tokens_of(text: str, dialect: Dialect) -> Iterator[Token]:
    """Yield the tokens of a text. Joined, they are the text.

    Raises:
        UnclosedTokenError: a quote or a comment is not closed.
    """
    at = 0
    while at < len(text):
        match = dialect.tokens.match(text, at)
        assert match is not None  # noqa: S101 - the last alternative matches any character
        group, end = match.lastgroup or "other", match.end()
        if group == "block":
            end = _comment_end(text, at, is_nested=dialect.has_nested_comments)
        elif group == "dollar":
            end = text.find(match[0], end) + len(match[0])
            if end < match.end():
                raise UnclosedTokenError(f"dollar-quoted text is not closed with {match[0]}", at)
        elif group == "other" and match[0] in _UNCLOSED:
            raise UnclosedTokenError(f"{_UNCLOSED[match[0]]} is not closed with {match[0]}", at)
        written = match["name"] if group == "parameter" else text[at:end]
        yield Token(_KINDS[group], written, at, end)
        at = end


def _comment_end(text: str, start: int, *, is_nested: bool) -> int:
    depth = 0
    for match in _COMMENT_MARK.finditer(text, start):
        if match[0] == "*/":
            depth -= 1
        elif is_nested or depth == 0:
            depth += 1
        if depth == 0:
            return match.end()
    raise UnclosedTokenError("a comment is not closed with */", start)
