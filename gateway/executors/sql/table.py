"""Writes rows as a short table of text, for clients and models that do not read structured content. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from gateway.json_types import Json
from gateway.language.templates.render_state import json_of

_ESCAPES: Final = str.maketrans({"\\": "\\\\", "|": "\\|", "\r": "\\r", "\n": "\\n"})
_SPECIAL: Final = re.compile(r"[\\|\r\n]")
_MAX_CELL: Final = 500
"""Characters of a cell; the structured content has the whole."""


def table_of(columns: Sequence[str], rows: Sequence[Mapping[str, Json]], *, is_truncated: bool) -> str:
    """The names of the columns, a line for each row, and a line that says how many there are."""
    lines = [" | ".join(_cell(column) for column in columns)]
    lines += [" | ".join(_cell(value) for value in row.values()) for row in rows]
    counted = "1 row" if len(rows) == 1 else f"{len(rows)} rows"
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
