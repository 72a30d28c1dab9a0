"""Collects the rows of a result as JSON up to size limits, and formats rows as text."""

import datetime as dt
import decimal
import math
import re
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec
import orjson

from gateway import exact_json
from gateway.json_types import Json
from gateway.language.templates.render_state import json_of

_FIRST_CHUNK: Final = 32
_MAX_CHUNK: Final = 1000
_MAX_OMITTED: Final = 100
"""The maximum number of rows that are omitted because of their size, before reading stops."""
_CHUNK_BYTES: Final = 2**18
"""Approximate bytes per fetch."""

_ESCAPES: Final = str.maketrans({"\\": "\\\\", "|": "\\|", "\r": "\\r", "\n": "\\n"})
_SPECIAL: Final = re.compile(r"[\\|\r\n]")
_MAX_CELL: Final = 500
"""The maximum number of characters of a cell in the text."""

Decimals = Literal["string", "number"]


class RowCollector:
    """Collects the rows of the last statement that returned a result."""

    def __init__(self, *, max_rows: int, max_bytes: int, decimals: Decimals = "string") -> None:
        """Create an empty collector for at most `max_rows` rows and `max_bytes` bytes of JSON."""
        self._max_rows: Final = max_rows
        self._max_bytes: Final = max_bytes
        self._decimals: Final = decimals
        self.has_result = False
        """Whether a statement returned a result, even without rows."""
        self.columns: list[str] = []
        self.rows: list[dict[str, Json]] = []
        self.is_truncated = False
        self.is_exhausted = False
        """Whether all rows of the result were fetched."""
        self.omitted = 0
        """The number of rows that are too large for a result."""
        self.affected: int | None = None
        """The number of rows changed by statements without a result, if known."""
        self.size = 0
        """The size of the JSON in bytes."""
        self._empty_size = 0
        self._fetched = 0
        self._read_bytes = 0
        self._texts: frozenset[int] = frozenset()

    def begin(self, columns: Sequence[str], *, json_columns: Sequence[int] = ()) -> None:
        """Start a new result. `json_columns` contains the indexes of columns with JSON text."""
        self.has_result, self.is_truncated, self.is_exhausted = True, False, False
        self.omitted = self._fetched = self._read_bytes = 0
        self.columns, self.rows = _unique_names(columns), []
        self.size = len(orjson.dumps(self.columns)) + len('{"columns":,"rows":[],"truncated":false}')
        self._empty_size = self.size
        self._texts = frozenset(json_columns)

    @property
    def _taken(self) -> int:
        return len(self.rows) + self.omitted

    def fetches(self) -> Iterator[int]:
        """Yield the number of rows for the next fetch, until the result ends or a limit is reached."""
        while not (self.is_truncated or self.is_exhausted):
            average = max(self._read_bytes // max(self._taken, 1), 1)
            chunk = min(_MAX_CHUNK, _CHUNK_BYTES // average) if self._taken else _FIRST_CHUNK
            # Fetching one row more than `max_rows` shows whether the result has more rows.
            wanted, before = max(1, min(self._max_rows + 1 - self._taken, chunk)), self._fetched
            yield wanted
            self.is_exhausted = self._fetched - before < wanted

    def add(self, fetched: Sequence[Sequence[Json]]) -> None:
        self._fetched += len(fetched)
        for values in fetched:
            row = {
                name: parsed(value) if index in self._texts else _json_value(value, self._decimals)
                for index, (name, value) in enumerate(zip(self.columns, values, strict=True))
            }
            # Count the comma between two rows.
            size = len(exact_json.dumps(row)) + 1
            self._read_bytes += size
            if self._taken >= self._max_rows or self.omitted >= _MAX_OMITTED:
                self.is_truncated = True
                return
            if size > self._max_bytes - self._empty_size:
                self.omitted += 1
                continue
            if self.size + size > self._max_bytes:
                self.is_truncated = True
                return
            self.rows.append(row)
            self.size += size

    def note_affected(self, count: int) -> None:
        if count >= 0:
            self.affected = (self.affected or 0) + count


def _unique_names(columns: Sequence[str]) -> list[str]:
    """Number duplicate column names, because columns become members of an object."""
    names: list[str] = []
    for column in columns:
        name, number = column, 2
        while name in names:
            name, number = f"{column}_{number}", number + 1
        names.append(name)
    return names


def parsed(value: Json) -> Json:
    """Parse JSON text from a column. Return text that is not JSON unchanged."""
    if isinstance(value, list):
        return list(map(parsed, value))
    try:
        return exact_json.loads(value)
    except (orjson.JSONDecodeError, TypeError):
        return value


def _json_value(value: Json, decimals: Decimals = "string") -> Json:
    """Convert a value from a driver to JSON. Times become ISO 8601, bytes base64, and unknown types text."""
    # Compare exact types: a datetime is also a date, and a boolean an integer.
    kind = type(value)
    if kind in _JSON_TYPES or (kind is float and math.isfinite(value)):
        return value
    if kind is decimal.Decimal:
        return _decimal(value, decimals)
    if kind is float or kind in _MSGSPEC_TYPES:
        return _not_finite(value) if kind is float else msgspec.to_builtins(value)
    if hasattr(value, "keys"):  # a mapping or an asyncpg record
        return {str(name): _json_value(member, decimals) for name, member in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_json_value(item, decimals) for item in value]
    return str(value)


_JSON_TYPES: Final = frozenset({type(None), bool, int, str})
_MSGSPEC_TYPES: Final = frozenset(
    {bytes, bytearray, memoryview, dt.date, dt.datetime, dt.time, dt.timedelta, uuid.UUID}
)


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _decimal(value: decimal.Decimal, decimals: Decimals) -> Json:
    if not value.is_finite():
        return _not_finite(float(value))
    # RFC 8259 §6: readers can take a number beyond the range of a double for infinity.
    if decimals == "string" or value.adjusted() >= sys.float_info.max_10_exp:
        # `str` can write an exponent (1E+3), which some readers do not accept.
        return format(value, "f")
    return int(value) if value == value.to_integral_value() else float(value)


def table_of(
    columns: Sequence[str], rows: Sequence[Mapping[str, Json]], *, is_truncated: bool, omitted: int = 0
) -> str:
    lines = [" | ".join(_cell(column) for column in columns)]
    lines += [" | ".join(_cell(value) for value in row.values()) for row in rows]
    counted = "1 row" if len(rows) == 1 else f"{len(rows)} rows"
    if omitted:
        counted += f", {omitted} omitted because they exceed the output's max_size"
    lines.append(f"({counted}, and there are more)" if is_truncated else f"({counted})")
    return "\n".join(lines)


def record_of(row: Mapping[str, Json]) -> str:
    return "\n".join(f"{_cell(name)}: {_cell(value)}" for name, value in row.items())


def _cell(value: Json) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else str(value) if type(value) is int else json_of(value)
    if len(text) > _MAX_CELL:
        text = f"{text[:_MAX_CELL]}…"
    return text if _SPECIAL.search(text) is None else text.translate(_ESCAPES)
