"""Compiles the text of a query into statements."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from gateway.config.diagnostics.near_misses import did_you_mean
from gateway.config.diagnostics.problems import Problems, TextOffset
from gateway.config.models.backends import SqlCompletion
from gateway.config.reading.source_file import UnreadableError, decode, read_bytes
from gateway.errors import Location, Problem
from gateway.executors.sql.dialects import Dialect, StatementError, Token, tokens_of
from gateway.executors.sql.query import Statement, StatementPiece, pieces_of, statements_of, words_of
from gateway.language.scope import Scope

_TEMPLATE: Final = re.compile(r"\{\{-?\s*([A-Za-z_]\w*)[^{}]*\}\}|\{%-?\s*(?:if|for|set|else|elif|end\w+)\b")
"""Matches template expressions. A `{{` alone does not match, because PostgreSQL arrays contain it too."""

_TRANSACTION: Final = "the gateway starts and ends the transaction of a query"
_SESSION: Final = "it would affect later calls on the same connection"
_REFUSED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("ABORT", "BEGIN", "COMMIT", "END", "RELEASE", "ROLLBACK", "SAVEPOINT", "START", "PREPARE"), _TRANSACTION
    ),
    **dict.fromkeys(("SET", "RESET", "DISCARD", "LISTEN", "UNLISTEN", "ATTACH", "DETACH"), _SESSION),
    "PRAGMA": f"{_SESSION}. To read, use a function such as pragma_table_info('orders')",
    "COPY": "it reads and writes files of the server",
    "VACUUM": "it cannot run in a transaction",
}
_READS: Final = frozenset({"SELECT", "WITH", "VALUES", "TABLE", "SHOW", "DESCRIBE", "EXPLAIN"})
"""The first words of statements that read data."""


Report = Callable[[int, str], None]
"""Reports a problem at an offset in the text of a query."""


def compile_query(
    config: SqlCompletion, *, dialect: Dialect, scope: Scope, writes: bool = False
) -> tuple[tuple[Statement, Report], ...]:
    statements = []
    for text, report in _texts_of(config, scope.problems):
        found = _statements(text, dialect, report)
        if not found:
            report(0, "contains no statement")
        for tokens in found:
            _check_start(tokens, report, must_read=not writes and not dialect.reads_only)
            # Values of `bind` have an empty schema, because any JSON is possible.
            schemas = {**{name: {} for name in config.bind}, **scope.inputs.schemas}
            statement = Statement(pieces=pieces_of(tokens), dialect=dialect, schemas=schemas)
            _check_names(statement, report, scope)
            statements.append((statement, report))
    return tuple(statements)


def _texts_of(config: SqlCompletion, problems: Problems) -> Iterator[tuple[str, Report]]:
    for index, query in enumerate(config.query or ()):
        yield str(query), partial(_report, problems.at("query", index))
    if config.query_file is not None:
        place, path = problems.at("query_file"), query_path(config, problems)
        try:
            text = decode(read_bytes(path))
        except UnreadableError as error:
            place.error(f"`{config.query_file}`: {error}")
        else:
            yield text, partial(_report_in_file, place, path, text)


def _report(place: Problems, offset: int, message: str) -> None:
    place.at(TextOffset(offset)).error(message)


def _report_in_file(place: Problems, file: Path, text: str, offset: int, message: str) -> None:
    line_start = text.rfind("\n", 0, offset) + 1
    location = Location(file=file, line=text.count("\n", 0, offset) + 1, column=offset - line_start + 1)
    source_line = text[line_start:].partition("\n")[0].rstrip()
    place.add(Problem(message=message, path=place.path, location=location, source_line=source_line))


def query_path(config: SqlCompletion, problems: Problems) -> Path:
    return problems.at("query_file").directory / (config.query_file or "")


def _statements(text: str, dialect: Dialect, report: Report) -> list[list[Token]]:
    try:
        tokens = list(tokens_of(text, dialect))
    except StatementError as error:
        report(error.offset or 0, str(error))
        return [[Token("other", "", 0, 0)]]  # an empty statement avoids further errors
    for token in tokens:
        if token.kind == "position":
            report(token.start, f"`{token.text}` is a numbered parameter. Bind an input by name: `:name`")
    commented = {(token.start, token.end) for token in tokens if token.kind in {"comment", "block"}}
    for match in _TEMPLATE.finditer(text):
        if not any(start <= match.start() < end for start, end in commented):
            bound = f"`:{match[1]}`, without quotes" if match[1] else "a condition on `:name` in SQL"
            report(match.start(), f"`{match[0]}` is a template, but queries bind values. Write {bound}")
    return statements_of(tokens)


def _check_start(tokens: Sequence[Token], report: Report, *, must_read: bool) -> None:
    words = words_of(tokens)
    first, second = words[0], words[1].text.upper() if len(words) > 1 else ""
    keyword = first.text.upper() if first.kind == "word" else ""
    reason = _REFUSED.get(keyword)
    # SET LOCAL has no effect after the transaction, but must not change the transaction's characteristics.
    if keyword == "SET" and second == "LOCAL":
        setting = words[2].text.upper() if len(words) > 2 else ""
        reason = _TRANSACTION if setting.startswith(("TRANSACTION", '"TRANSACTION')) else None
    elif keyword == "SET" and {"TRANSACTION", "CHARACTERISTICS"} & {word.text.upper() for word in words[1:3]}:
        reason = _TRANSACTION
    elif must_read and keyword and keyword not in _READS:
        reason = "it can change data, which requires `writes: true`"
    if reason is not None:
        report(first.start, f"{keyword} is not allowed in a query: {reason}")


def _check_names(statement: Statement, report: Report, scope: Scope) -> None:
    known = statement.schemas
    for piece in statement.pieces:
        if piece.kind == "sql":
            continue
        name, schema = piece.text, known.get(piece.text)
        scope.used.add(name)
        if name not in known and not scope.inputs.is_open:
            report(piece.start, f"`:{name}` is not an input{did_you_mean(name, [*known])}")
            continue
        is_array = isinstance(schema, Mapping) and schema.get("type") == "array"
        if is_array and not piece.is_list and _follows_in(statement, piece):
            report(piece.start, f"a list must be the only item in its brackets: IN (:{name})")


def _follows_in(statement: Statement, parameter: StatementPiece) -> bool:
    """Return whether a parameter is used as in `IN :name` or `IN (1, :name)`, where a list cannot be bound."""
    at = statement.pieces.index(parameter)
    before = "".join(piece.text for piece in statement.pieces[:at] if piece.kind == "sql")
    return re.search(r"\bIN\s*(\([^()]*)?$", before, re.IGNORECASE) is not None
