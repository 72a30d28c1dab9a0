"""Parses text output in the formats `lines`, `jsonl`, `csv` and `yaml`, and applies JMESPath expressions."""

import csv
from collections.abc import Callable, Mapping
from io import StringIO
from itertools import zip_longest
from pathlib import Path
from typing import Final, Literal

import orjson
from jmespath.exceptions import JMESPathError
from jmespath.parser import ParsedResult

from gateway import exact_json
from gateway.config.reading.composer import compose
from gateway.config.reading.nodes import Mapping as MappingNode
from gateway.config.reading.nodes import Node, Scalar, plain
from gateway.config.reading.source_file import SourceFile
from gateway.control_characters import with_newlines
from gateway.errors import ExecutionError
from gateway.executors.output.output_store import MAX_OUTPUT_BYTES
from gateway.json_types import Json

TextFormat = Literal["lines", "jsonl", "csv", "yaml"]

_CELL_COST: Final = 16
"""Estimated characters of a value in a row, without the column name that each row repeats."""


def parsed(text: str, text_format: str) -> Json:
    """Parse the text of an output. An empty output becomes an empty list.

    Raises:
        ExecutionError: the output does not have the format `text_format`.
    """
    return PARSERS[text_format](with_newlines(text)) if text.strip() or text_format == "lines" else []


def select(expression: ParsedResult, value: Json, *, key: str, source: str = "output") -> Json:
    """Apply a JMESPath expression to a value. Errors name the configuration `key` and the `source` of the value.

    Raises:
        ExecutionError: the expression cannot be evaluated, for example because a function expects another type.
    """
    try:
        return expression.search(value)
    # Boundary: a backend can return any value.
    except (JMESPathError, ArithmeticError, RecursionError, TypeError, ValueError) as error:
        raise ExecutionError(f"`{key}` cannot be applied to the {source}: {error}") from error


def _lines(text: str) -> list[str]:
    # `str.splitlines` would also split at form feeds and U+2028.
    return text.removesuffix("\n").split("\n") if text else []


def _json_lines(text: str) -> list[Json]:
    values = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                values.append(exact_json.loads(line))
            except orjson.JSONDecodeError as error:
                raise _not_valid("JSONL", number, f"{error.msg} at column {error.colno}") from error
    return values


def _rows(text: str) -> list[dict[str, str | None]]:
    reader = csv.reader(StringIO(text), strict=True)
    rows: list[dict[str, str | None]] = []
    try:
        filled = filter(None, reader)
        names = next(filled, [])
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise _not_valid("CSV", reader.line_num, f"the header has two columns named `{twice}`")
        # Each row repeats the column names, so a small output could become a huge result.
        most_rows = MAX_OUTPUT_BYTES // (sum(map(len, names)) + _CELL_COST * len(names) or 1)
        for row in filled:
            if len(row) > len(names):
                reason = f"the row has {len(row)} values, but the header has {len(names)}"
                raise _not_valid("CSV", reader.line_num, reason)
            if len(rows) >= most_rows:
                raise _not_valid("CSV", reader.line_num, "too many rows for such long column names")
            rows.append(dict(zip_longest(names, row)))
    except csv.Error as error:
        raise _not_valid("CSV", reader.line_num, str(error)) from error
    return rows


def _yaml(text: str) -> Json:
    root, diagnostics = compose(SourceFile(Path("output"), text), has_scalar_keys=True)
    for diagnostic in diagnostics:
        line = 1 if diagnostic.place is None else diagnostic.place.line
        raise _not_valid("YAML", line, diagnostic.message.removeprefix("YAML syntax: "))
    if root is None:
        return []
    # The composer limits the number of values, but not the text that aliases repeat.
    if _length(root) > MAX_OUTPUT_BYTES:
        raise _not_valid("YAML", 1, f"larger than {MAX_OUTPUT_BYTES >> 20} MiB once aliases are expanded")
    return plain(root)


def _length(node: Node) -> int:
    if isinstance(node, Scalar):
        return len(str(node.value))
    if isinstance(node, MappingNode):
        return sum(len(key) + _length(entry.node) for key, entry in node.entries.items())
    return sum(map(_length, node.items))


def _not_valid(name: str, line: int, reason: str) -> ExecutionError:
    return ExecutionError(f"The output is not valid {name} (line {line}): {reason}")


PARSERS: Final[Mapping[str, Callable[[str], Json]]] = {
    "lines": _lines,
    "jsonl": _json_lines,
    "csv": _rows,
    "yaml": _yaml,
}
