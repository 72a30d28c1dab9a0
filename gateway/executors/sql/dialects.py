"""SQL dialects: the differences between databases that statements depend on.

`connections` contains the drivers that need more than SQLAlchemy.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway.executors.sql.input_types import InputType, ValueForm


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """The first part of an SQLAlchemy URL."""
    tokens: re.Pattern[str]
    """Matches one token. Its groups are the keys of `_KINDS` in `tokens`."""
    has_nested_comments: bool = False
    placeholder: str
    """The text of a parameter, with `{}` for its number, counted from 1."""
    reuses: bool
    """Whether a parameter that occurs twice is sent once."""
    casts: Mapping[InputType, str] = msgspec.field(default_factory=dict)
    """Casts of parameters, for types that the database would infer differently."""
    empty_in: str
    """Replaces `IN` with an empty list."""
    empty_not_in: str
    escape: Callable[[str], str] = str
    """Escapes text between parameters for the driver."""
    binding: ValueForm = ValueForm.NATIVE
    reads_only: bool = True
    """Whether read-only transactions are supported."""


_LINE_COMMENT: Final = r"(?P<comment>--[^\n]*)"
_BLOCK: Final = r"(?P<block>/\*)"
# Standard SQL has no backslash escapes.
_QUOTES: Final = r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`"""
# `::` is one token, so that the second colon of a cast does not start a parameter.
_COMMON: Final = r"(?P<parameter>:(?P<name>[A-Za-z_][A-Za-z0-9_]*))|(?P<word>[^\W\d][\w$]*)|(?P<other>::|:=|\d[\w.]*|.)"
_SPACE: Final = r"(?P<space>\s+)"


def _tokens(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join((_SPACE, *patterns, _COMMON)), re.DOTALL)


def _with_escaped_colons(text: str) -> str:
    # SQLAlchemy's `text()` reads `:name` as a parameter unless it is escaped.
    return re.sub(r":(?=\w)", r"\\:", text)


POSTGRESQL: Final = Dialect(
    name="postgresql",
    # `E'…'` has backslash escapes (PostgreSQL manual, §4.1.2.2). It is matched before words.
    tokens=_tokens(
        _LINE_COMMENT,
        _BLOCK,
        r"(?P<position>\$\d+)",
        r"(?P<dollar>\$(?:[^\W\d]\w*)?\$)",
        rf"(?P<quoted>[eE]'(?:[^'\\]|\\.|'')*'|{_QUOTES})",
    ),
    has_nested_comments=True,
    placeholder="${}",
    reuses=True,
    casts={
        InputType.DATE: "date",
        InputType.DATE_TIME: "timestamptz",
        InputType.UUID: "uuid",
        InputType.FILE: "bytea",
        InputType.JSON: "jsonb",
        InputType.PRESENCE: "text",
    },
    # An array literal takes the type of the compared value. A subquery with NULL would be text.
    empty_in="= ANY ('{}')",
    empty_not_in="<> ALL ('{}')",
    binding=ValueForm.TEXT,
)
SQLITE: Final = Dialect(
    name="sqlite",
    tokens=_tokens(_LINE_COMMENT, _BLOCK, r"(?P<position>\?\d*|[@#$]\w+)", rf"(?P<quoted>\[[^\]]*\]|{_QUOTES})"),
    placeholder="?",
    reuses=False,
    # SQLite allows an empty list ("The IN and NOT IN Operators").
    empty_in="IN ()",
    empty_not_in="NOT IN ()",
    binding=ValueForm.SQLITE,
)
# MySQL 5.7 and others require a FROM before a WHERE, and a name for each derived table.
_NO_ROWS: Final = "(SELECT 1 FROM (SELECT 1 AS p) AS no_rows WHERE 1 = 0)"
_STANDARD: Final = Dialect(
    name="",
    tokens=_tokens(_LINE_COMMENT, _BLOCK, rf"(?P<quoted>{_QUOTES})"),
    placeholder=":p{}",  # replaced by SQLAlchemy's `text()`
    reuses=True,
    escape=_with_escaped_colons,
    empty_in=f"IN {_NO_ROWS}",
    empty_not_in=f"NOT IN {_NO_ROWS}",
    reads_only=False,
)
_MYSQL: Final = replace(
    _STANDARD,
    name="mysql",
    tokens=_tokens(r"(?P<comment>--[^\n]*|\#[^\n]*)", _BLOCK, rf"(?P<quoted>'(?:[^'\\]|\\.|'')*'|{_QUOTES})"),
)
DIALECTS: Final[Mapping[str, Dialect]] = {
    each.name: each for each in (POSTGRESQL, SQLITE, _MYSQL, replace(_MYSQL, name="mariadb"))
}


def dialect_of(name: str) -> Dialect:
    """Return a dialect. Unknown ones use standard SQL without read-only transactions."""
    return DIALECTS.get(name) or replace(_STANDARD, name=name)
