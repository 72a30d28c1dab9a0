"""Splits SQL into tokens, as far as it takes to tell parameters from what only looks like them. Pure.

A colon within quoted text, a quoted name, a comment or a cast (`::`) begins no parameter. The databases differ in what
quotes: only PostgreSQL has dollar quotes, `E'…'` and nested comments, only SQLite `[name]`.
"""

import re
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import Final

import msgspec


class Kind(Enum):
    WORD = auto()
    """A keyword or a name."""
    PARAMETER = auto()
    """`:name`; the token's text is the name."""
    POSITION = auto()
    """A parameter that the database numbers itself: `$1`, `?`."""
    QUOTED = auto()
    """Quoted text, or a quoted name."""
    COMMENT = auto()
    SPACE = auto()
    OTHER = auto()
    """Operators, punctuation and numbers."""


class Token(msgspec.Struct, frozen=True):
    kind: Kind
    text: str
    start: int
    """Characters before it."""
    end: int


class UnclosedTokenError(Exception):
    """A quote or a comment has no end; `start` is where it begins."""

    def __init__(self, message: str, start: int) -> None:
        super().__init__(message)
        self.start = start


_LINE_COMMENT: Final = r"(?P<comment>--[^\n]*)"
# Standard SQL has no backslash escapes; MySQL has, and PostgreSQL in `E'…'` (its manual, §4.1.2.2).
_QUOTES: Final = r"""(?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`)"""
# `::` is one token, lest the second colon of a cast begin a parameter.
_COMMON: Final = r"(?P<parameter>:(?P<name>[A-Za-z_][A-Za-z0-9_]*))|(?P<word>[^\W\d][\w$]*)|(?P<other>::|:=|\d[\w.]*|.)"
_SPACE: Final = r"(?P<space>\s+)"
# `E'…'` comes before words, of which its E would be one.
_POSTGRESQL: Final = re.compile(
    rf"""{_SPACE}|{_LINE_COMMENT}|(?P<block>/\*)|(?P<escaped>[eE]'(?:[^'\\]|\\.|'')*')|(?P<position>\$\d+)"""
    rf"""|(?P<dollar>\$(?:[^\W\d]\w*)?\$)|{_QUOTES}|{_COMMON}""",
    re.DOTALL,
)
_SQLITE: Final = re.compile(
    rf"""{_SPACE}|{_LINE_COMMENT}|(?P<block>/\*)|(?P<bracketed>\[[^\]]*\])|(?P<position>\?\d*|[@#$]\w+)"""
    rf"""|{_QUOTES}|{_COMMON}""",
    re.DOTALL,
)
_OTHER: Final = re.compile(rf"{_SPACE}|{_LINE_COMMENT}|(?P<block>/\*)|{_QUOTES}|{_COMMON}", re.DOTALL)
_MYSQL: Final = re.compile(
    rf"""{_SPACE}|(?P<comment>--[^\n]*|\#[^\n]*)|(?P<block>/\*)|(?P<escaped>'(?:[^'\\]|\\.|'')*')|{_QUOTES}|{_COMMON}""",
    re.DOTALL,
)
_PATTERNS: Final[Mapping[str, re.Pattern[str]]] = {
    "postgresql": _POSTGRESQL,
    "sqlite": _SQLITE,
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
}
_COMMENT_MARK: Final = re.compile(r"/\*|\*/")

_KINDS: Final[Mapping[str, Kind]] = {
    "space": Kind.SPACE,
    "comment": Kind.COMMENT,
    "block": Kind.COMMENT,
    "escaped": Kind.QUOTED,
    "dollar": Kind.QUOTED,
    "bracketed": Kind.QUOTED,
    "quoted": Kind.QUOTED,
    "position": Kind.POSITION,
    "parameter": Kind.PARAMETER,
    "word": Kind.WORD,
    "other": Kind.OTHER,
}
_UNENDED: Final[Mapping[str, str]] = {"'": "quoted text", '"': "a quoted name", "`": "a quoted name"}


def tokens_of(text: str, *, dialect: str) -> Iterator[Token]:
    """Yield the tokens of a text, which together are the text.

    Raises:
        TokenError: a quote or a comment has no end.
    """
    pattern, at = _PATTERNS.get(dialect, _OTHER), 0
    while at < len(text):
        match = pattern.match(text, at)
        assert match is not None  # noqa: S101 - the last alternative takes any character
        group, end = match.lastgroup or "other", match.end()
        if group == "block":
            # A regular expression cannot count how deep comments are nested.
            end = _comment_end(text, at, is_nested=dialect == "postgresql")
        elif group == "dollar":
            end = text.find(match[0], end) + len(match[0])
            if end < match.end():
                raise UnclosedTokenError(f"text in dollar quotes has no {match[0]} at its end", at)
        elif group == "other" and match[0] in _UNENDED:
            raise UnclosedTokenError(f"{_UNENDED[match[0]]} has no {match[0]} at its end", at)
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
    raise UnclosedTokenError("a comment has no */ at its end", start)
