"""Parses the statements of a query, and binds arguments.

Threat: SQL injection. Values are never part of a statement, which consists of the configured SQL and placeholders. Only
the number of placeholders for a list depends on a value.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Literal

import msgspec

from gateway.executors.sql.dialects import IGNORED, Dialect, InputType, Token, bound_value, items_of, type_of
from gateway.json_types import Json, JsonObject


class StatementPiece(msgspec.Struct, frozen=True):
    """A part of a statement.

    The kinds are:

    - `sql`: SQL text without parameters
    - `value`: `:name`
    - `null_test`: `:name` before `IS NULL` or `IS NOT NULL`, for which PostgreSQL cannot infer a type
    - `in` and `not_in`: `IN (:name)` and `NOT IN (:name)`, with one placeholder for each item of a list
    """

    kind: Literal["sql", "value", "null_test", "in", "not_in"]
    text: str
    """The SQL, or the name of the parameter."""
    start: int
    """The offset in the configured SQL."""

    @property
    def is_list(self) -> bool:
        return self.kind in {"in", "not_in"}


class BoundStatement(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    values: tuple[Json, ...]
    names: tuple[str, ...]
    starts: tuple[tuple[int, int], ...] = ()
    """For each piece: its offset in `text`, and its offset in the configured SQL."""
    uncast: tuple[tuple[int, int, str | None], ...] = ()
    """For each placeholder without a cast: its offset in `text`, the number of its value (from 1), and a database type.

    The database type is None unless the value is an array or a number."""
    separate: Callable[[], "BoundStatement"] | None = None
    """Binds the arguments again with a value for each placeholder, so that the types of one input can differ."""

    def with_types(self, types: Mapping[int, str]) -> str:
        """Return the text with casts. `types` maps the number of a value (from 1) to the type of its cast."""
        text = self.text
        for start, number, _ in reversed(self.uncast):
            if number in types:
                end = start + len(f"${number}")
                text = f"{text[:start]}CAST(CAST(${number} AS text) AS {types[number]}){text[end:]}"
        return text

    def written_offset(self, offset: int) -> int:
        """Convert an offset in `text` to an offset in the configured SQL."""
        sent, written = max((pair for pair in self.starts if pair[0] <= offset), default=(0, 0))
        following = min((start for _, start in self.starts if start > written), default=written + offset)
        return min(written + offset - sent, following)


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    pieces: tuple[StatementPiece, ...]
    dialect: Dialect
    schemas: Mapping[str, Json]

    @property
    def names(self) -> set[str]:
        return {piece.text for piece in self.pieces if piece.kind != "sql"}

    def bind(self, arguments: JsonObject, *, is_separate: bool = False) -> BoundStatement:
        """Bind the arguments of a call. Absent arguments become NULL.

        With `is_separate`, placeholders do not share values.

        Raises:
            ExecutionError: a value cannot be bound.
        """
        writing = _StatementBuilder(self.dialect, reuses=self.dialect.reuses and not is_separate)
        for piece in self.pieces:
            writing.mark(piece.start)
            name, value = piece.text, arguments.get(piece.text)
            match piece.kind:
                case "sql":
                    writing.text(self.dialect.escape(piece.text))
                case "null_test":
                    writing.value(name, None if value is None else "", InputType.NULL_TEST)
                case "value":
                    writing.parameter(name, value, self.schemas.get(name))
                case _:
                    self._bind_list(piece, value, writing)
        return writing.finished(separate=partial(self.bind, arguments, is_separate=True))

    def _bind_list(self, piece: StatementPiece, value: Json, writing: "_StatementBuilder") -> None:
        schema, is_negated = self.schemas.get(piece.text), piece.kind == "not_in"
        # The input of `IN (:name)` can be a single value.
        values, kind = ([value], type_of(schema))
        if isinstance(value, list | tuple):
            values, kind = list(value), type_of(items_of(schema))
        if not values:
            writing.text(self.dialect.empty_not_in if is_negated else self.dialect.empty_in)
            return
        writing.text("NOT IN (" if is_negated else "IN (")
        for index, each in enumerate(values):
            writing.text(", " if index else "")
            writing.value(piece.text, each, kind)
        writing.text(")")


class _StatementBuilder:
    def __init__(self, dialect: Dialect, *, reuses: bool) -> None:
        self._dialect = dialect
        self._reuses = reuses
        self._parts: list[str] = []
        self._length = 0
        self._values: list[Json] = []
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._starts: list[tuple[int, int]] = []
        self._uncast: list[tuple[int, int, str | None]] = []

    def mark(self, start: int) -> None:
        self._starts.append((self._length, start))

    def text(self, text: str) -> None:
        self._parts.append(text)
        self._length += len(text)

    def parameter(self, name: str, value: Json, schema: Json) -> None:
        kind = type_of(schema)
        fallback = f"{self._element_type(items_of(schema))}[]" if kind is InputType.ARRAY else None
        # One placeholder per name, because PostgreSQL infers the type of each placeholder.
        if self._reuses and name in self._numbers:
            self._place(self._numbers[name], kind, fallback)
        else:
            self._numbers[name] = self.value(name, value, kind, fallback)

    def value(self, name: str, value: Json, kind: InputType, fallback: str | None = None) -> int:
        self._values.append(bound_value(name, value, kind, self._dialect.binding))
        self._names.append(name)
        self._place(len(self._values), kind, fallback)
        return len(self._values)

    def _place(self, number: int, kind: InputType, fallback: str | None) -> None:
        cast = self._dialect.casts.get(kind)
        placeholder = self._dialect.placeholder.format(number)
        if cast is None:
            fallback = "numeric" if kind is InputType.NUMBER else fallback
            self._uncast.append((self._length, number, fallback))
        elif self._dialect.binding == "text" and kind is not InputType.FILE:
            placeholder = f"CAST({placeholder} AS text)"
        self.text(placeholder if cast is None else f"CAST({placeholder} AS {cast})")

    def _element_type(self, schema: JsonObject) -> str:
        kind = type_of(schema)
        if kind is InputType.ARRAY:
            return self._element_type(items_of(schema))
        plain = {"integer": "bigint", "number": "numeric", "boolean": "boolean"}.get(str(schema.get("type")), "text")
        return self._dialect.casts.get(kind, plain)

    def finished(self, *, separate: Callable[[], BoundStatement]) -> BoundStatement:
        return BoundStatement(
            text="".join(self._parts),
            values=tuple(self._values),
            names=tuple(self._names),
            starts=tuple(self._starts),
            uncast=tuple(self._uncast),
            separate=separate,
        )


def statements_of(tokens: Iterable[Token]) -> list[list[Token]]:
    """Split tokens at each `;`. Empty statements are dropped."""
    found: list[list[Token]] = [[]]
    for token in tokens:
        if token.kind == "other" and token.text == ";":
            found.append([])
        else:
            found[-1].append(token)
    return [each for each in found if words_of(each)]


def words_of(tokens: Iterable[Token]) -> list[Token]:
    return [token for token in tokens if token.kind not in IGNORED]


def pieces_of(tokens: Sequence[Token]) -> tuple[StatementPiece, ...]:
    words = words_of(tokens)
    lists, null_tests = dict(_lists_in(words)), _null_tests_in(words)
    pieces: list[StatementPiece] = []
    skip_to = 0
    for token in tokens:
        if token.start < skip_to:
            continue
        if token.start in lists:
            piece, skip_to = lists[token.start]
            pieces.append(piece)
        elif token.kind == "parameter":
            pieces.append(
                StatementPiece("null_test" if token.start in null_tests else "value", token.text, token.start)
            )
        elif pieces and (last := pieces[-1]).kind == "sql":
            pieces[-1] = StatementPiece("sql", last.text + token.text, last.start)
        else:
            pieces.append(StatementPiece("sql", token.text, token.start))
    return tuple(pieces)


def _null_tests_in(tokens: Sequence[Token]) -> set[int]:
    return {
        token.start
        for index, token in enumerate(tokens)
        if token.kind == "parameter"
        and [each.text.upper() for each in tokens[index + 1 : index + 4] if each.text.upper() != "NOT"][:2]
        == ["IS", "NULL"]
    }


def _lists_in(tokens: Sequence[Token]) -> Iterable[tuple[int, tuple[StatementPiece, int]]]:
    """For each `[NOT] IN (:name)`, yield the start offset, the piece and the end offset."""
    for index, token in enumerate(tokens[:-3]):
        opening, parameter, closing = tokens[index + 1 : index + 4]
        is_list = (
            token.kind == "word"
            and token.text.upper() == "IN"
            and (opening.text, closing.text) == ("(", ")")
            and parameter.kind == "parameter"
        )
        if is_list:
            before = tokens[index - 1] if index else token
            is_negated = before.kind == "word" and before.text.upper() == "NOT"
            start = before.start if is_negated else token.start
            yield start, (StatementPiece("not_in" if is_negated else "in", parameter.text, start), closing.end)
