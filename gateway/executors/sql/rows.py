"""Collects the rows of a result as JSON, within its limits: a database may have a million more.

Writes them as a short table of text, too, for clients and models that do not read structured content.
"""

import datetime as dt
import decimal
import math
import re
import sys
import uuid
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec
import orjson

from gateway import exact_json
from gateway.json_types import Json
from gateway.language.templates.render_state import json_of

_FIRST_CHUNK: Final = 32
_MAX_CHUNK: Final = 1000
_MAX_OMITTED: Final = 100
"""Rows too large for any result, after which the rest is not read."""
_CHUNK_BYTES: Final = 2**18
"""Bytes of rows that are fetched at once, about."""

_ESCAPES: Final = str.maketrans({"\\": "\\\\", "|": "\\|", "\r": "\\r", "\n": "\\n"})
_SPECIAL: Final = re.compile(r"[\\|\r\n]")
_MAX_CELL: Final = 500
"""Characters of a cell; the structured content has the whole."""

Decimals = Literal["string", "number"]


class RowLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a result."""

    max_rows: int
    max_bytes: int
    """Bytes of its JSON."""


class RowCollector:
    """The rows of the last statement that returned any."""

    def __init__(self, limits: RowLimits, *, decimals: Decimals) -> None:
        self._limits: Final = limits
        self._decimals: Final = decimals
        self.has_result = False
        """Whether a statement returned rows, be it none."""
        self.columns: list[str] = []
        self.rows: list[dict[str, Json]] = []
        self.is_truncated = False
        """Whether there are more rows than were read."""
        self.omitted = 0
        """Rows left out because each alone is larger than a result may be."""
        self.affected: int | None = None
        """Rows that statements without a result changed; None where no database said."""
        self.size = 0
        """Bytes of the JSON."""
        self._empty_size = 0
        self._read_bytes = 0
        self._texts: frozenset[int] = frozenset()

    def begin(self, columns: Sequence[str], *, json_columns: Sequence[int] = ()) -> None:
        """Forget what was collected, and take rows with these columns; some hold JSON as text."""
        self.has_result, self.is_truncated, self.omitted, self._read_bytes = True, False, 0, 0
        self.columns, self.rows = _unique_names(columns), []
        self.size = len(orjson.dumps(self.columns)) + len('{"columns":,"rows":[],"truncated":false}')
        self._empty_size = self.size
        self._texts = frozenset(json_columns)

    @property
    def _taken(self) -> int:
        return len(self.rows) + self.omitted

    @property
    def first_wanted(self) -> int:
        """The number of rows to fetch of a result that has not begun."""
        return min(self._limits.max_rows + 1, _FIRST_CHUNK)

    @property
    def wanted(self) -> int:
        """The number of rows to fetch next; 0 if there is no room for any. One more than fits is asked for."""
        if self.is_truncated:
            return 0
        # One more than may be sent tells whether there are more, without a count that the database would have to make.
        missing = self._limits.max_rows + 1 - self._taken
        if not self._taken:
            return self.first_wanted
        average = max(self._read_bytes // self._taken, 1)
        return max(1, min(missing, _MAX_CHUNK, _CHUNK_BYTES // average))

    def add(self, fetched: Sequence[Sequence[Json]]) -> None:
        """Take rows until one does not fit."""
        for values in fetched:
            row = {
                name: self._json(index, value)
                for index, (name, value) in enumerate(zip(self.columns, values, strict=True))
            }
            # With the comma after it.
            size = len(exact_json.dumps(row)) + 1
            self._read_bytes += size
            if self._taken >= self._limits.max_rows or self.omitted >= _MAX_OMITTED:
                self.is_truncated = True
                return
            if size > self._limits.max_bytes - self._empty_size:
                self.omitted += 1
                continue
            if self.size + size > self._limits.max_bytes:
                self.is_truncated = True
                return
            self.rows.append(row)
            self.size += size

    def note_affected(self, count: int) -> None:
        """Count the rows that a statement changed."""
        if count >= 0:
            self.affected = (self.affected or 0) + count

    def _json(self, index: int, value: Json) -> Json:
        if index in self._texts and value is not None:
            return parsed(value)
        return _json_value(value, self._decimals)


def _unique_names(columns: Sequence[str]) -> list[str]:
    """The names of columns, which are members of an object: of two that are alike, the second is numbered."""
    names: list[str] = []
    for column in columns:
        name, number = column, 2
        while name in names:
            name, number = f"{column}_{number}", number + 1
        names.append(name)
    return names


def parsed(value: Json) -> Json:
    """The JSON that a column holds as text, or the text if it is none."""
    if isinstance(value, list):
        return [None if item is None else parsed(item) for item in value]
    try:
        return exact_json.loads(value)
    except (orjson.JSONDecodeError, TypeError):
        return value


def _json_value(value: Json, decimals: Decimals = "string") -> Json:
    """A value of a driver as JSON: times in ISO 8601, bytes in base64, and as text what JSON has no form for."""
    # By its exact type: a datetime is a date as well, and a boolean an integer.
    kind = type(value)
    if kind in _AS_IT_IS or (kind is float and math.isfinite(value)):
        return value
    if kind is decimal.Decimal:
        return _decimal(value, decimals)
    if kind is float or kind in _WRITTEN_BY_MSGSPEC:
        return _not_finite(value) if kind is float else msgspec.to_builtins(value)
    if hasattr(value, "keys"):  # a mapping, or a record of asyncpg's
        return {str(name): _json_value(member, decimals) for name, member in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_json_value(item, decimals) for item in value]
    return str(value)


_AS_IT_IS: Final = frozenset({type(None), bool, int, str})
_WRITTEN_BY_MSGSPEC: Final = frozenset(
    {bytes, bytearray, memoryview, dt.date, dt.datetime, dt.time, dt.timedelta, uuid.UUID}
)


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _decimal(value: decimal.Decimal, decimals: Decimals) -> Json:
    if not value.is_finite():
        return _not_finite(float(value))
    # RFC 8259 §6: beyond the range of a double, readers may take a number for an infinite one.
    if decimals == "string" or value.adjusted() >= sys.float_info.max_10_exp:
        # `str` may write an exponent (1E+3), which not everybody who takes text for a number reads.
        return format(value, "f")
    return int(value) if value == value.to_integral_value() else float(value)


def table_of(
    columns: Sequence[str], rows: Sequence[Mapping[str, Json]], *, is_truncated: bool, omitted: int = 0
) -> str:
    """The names of the columns, a line for each row, and a line that says how many there are."""
    lines = [" | ".join(_cell(column) for column in columns)]
    lines += [" | ".join(_cell(value) for value in row.values()) for row in rows]
    counted = "1 row" if len(rows) == 1 else f"{len(rows)} rows"
    if omitted:
        counted += f", {omitted} left out as larger than the output's max_size"
    lines.append(f"({counted}, and there are more)" if is_truncated else f"({counted})")
    return "\n".join(lines)


def record_of(row: Mapping[str, Json]) -> str:
    """One row, a line for each column."""
    return "\n".join(f"{_cell(name)}: {_cell(value)}" for name, value in row.items())


def _cell(value: Json) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else str(value) if type(value) is int else json_of(value)
    if len(text) > _MAX_CELL:
        text = f"{text[:_MAX_CELL]}…"
    return text if _SPECIAL.search(text) is None else text.translate(_ESCAPES)
