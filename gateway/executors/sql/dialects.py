"""The dialects of SQL: what statements and values must look like for each kind of database. Pure data and text."""

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from gateway.executors.sql.input_types import InputType, ValueForm


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about one kind of database that statements depend on."""

    name: str
    """As it stands first in an SQLAlchemy URL."""
    placeholder: str
    """The text of a parameter, with `{}` for its number, counted from 1."""
    reuses: bool
    """Whether a parameter that stands twice is sent once."""
    casts: Mapping[InputType, str] = msgspec.field(default_factory=dict)
    """The types to which parameters are cast, since the database would otherwise guess another one.

    Where values are bound as text, the database tells the types of the others."""
    empty_in: str
    """`IN` with an empty list, without the value before it."""
    empty_not_in: str
    escape: Callable[[str], str] = str
    """Makes text between parameters safe from being read for parameters once more."""
    binding: ValueForm = ValueForm.NATIVE
    """How its driver takes values."""
    reads_only: bool = True
    """Whether it has read-only transactions that this gateway knows how to begin."""


def _with_escaped_colons(text: str) -> str:
    # SQLAlchemy's `text()` reads `:name` for a parameter, unless a backslash stands before it.
    return re.sub(r":(?=\w)", r"\\:", text)


POSTGRESQL: Final = Dialect(
    name="postgresql",
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
    # Not a subquery, whose NULL would be text: an array literal takes the type of what it is compared with.
    empty_in="= ANY ('{}')",
    empty_not_in="<> ALL ('{}')",
    binding=ValueForm.TEXT,
)
SQLITE: Final = Dialect(
    name="sqlite",
    placeholder="?",
    reuses=False,
    # SQLite allows an empty list, other than standard SQL (its documentation, "The IN and NOT IN Operators").
    empty_in="IN ()",
    empty_not_in="NOT IN ()",
    binding=ValueForm.SQLITE,
)


def dialect_of(name: str) -> Dialect:
    """The dialect of a kind of database; one that is not known can only be written to."""
    known = {each.name: each for each in (POSTGRESQL, SQLITE)}
    if name in known:
        return known[name]
    # Some databases, such as MySQL 5.7, want a FROM before a WHERE, and a name for each derived table.
    no_rows = "(SELECT 1 FROM (SELECT 1 AS p) AS no_rows WHERE 1 = 0)"
    return Dialect(
        name=name,
        placeholder=":p{}",  # SQLAlchemy's `text()` turns it into the driver's own
        reuses=True,
        escape=_with_escaped_colons,
        empty_in=f"IN {no_rows}",
        empty_not_in=f"NOT IN {no_rows}",
        reads_only=False,
    )
