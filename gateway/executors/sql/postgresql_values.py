"""Conversions to and from PostgreSQL text, where driver objects lose information or have no JSON form."""

import datetime as dt
from collections.abc import Sequence
from typing import Any, Final, Protocol

from gateway import exact_json
from gateway.executors.sql.dialects import POSTGRESQL, Kind, tokens_of
from gateway.json_types import Json

# fmt: off
_LOSSLESS: Final = frozenset({
    "bool", "int2", "int4", "int8", "oid", "float8", "numeric", "text", "varchar", "bpchar", "name", "xml", "unknown",
    "json", "jsonb", "bytea", "uuid", "inet", "cidr", "date", "timestamp", "timestamptz", "void",
})
# fmt: on
"""Types that the driver reads without loss. Other types are cast to text."""
_TEXT: Final = frozenset({"text", "varchar", "bpchar", "name", "unknown"})
_VERBS: Final = frozenset({"SELECT", "VALUES", "TABLE", "INSERT", "UPDATE", "DELETE", "MERGE"})
"""The first words of a statement after its WITH clause."""
_DAY: Final = 86_400_000_000
"""Microseconds."""
_EPOCH: Final = dt.date(2000, 1, 1).toordinal()
_FOUR_CENTURIES: Final = 146_097
"""The period of the Gregorian calendar in days."""


class Type(Protocol):
    """The type of a value or column, as described by asyncpg."""

    name: str
    schema: str


async def exchange_times_exactly(connection: Any) -> None:
    """Read times as ISO 8601, because Python's types have no infinity and end with year 9999."""
    # Not in the startup packet: PgBouncer rejects unknown parameters there.
    await connection.execute("SET intervalstyle = 'iso_8601'; SET datestyle = 'ISO'")
    for name, read in (("date", _date), ("timestamp", _timestamp), ("timestamptz", _timestamptz)):
        await connection.set_type_codec(name, schema="pg_catalog", encoder=tuple, decoder=read, format="tuple")


async def describe_rows(connection: Any) -> None:
    """Register codecs for types that asyncpg cannot decode, so that it accepts rows that contain them.

    The codecs are never used, because columns of such types are cast to text.
    """
    types = await connection.fetch(
        "SELECT nspname, typname FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = typnamespace"
        " WHERE typtype = 'b' AND typelem = 0 AND NOT (nspname = 'pg_catalog' AND typname = ANY($1))",
        _LOSSLESS,
    )
    for schema, name in types:
        await connection.set_type_codec(name, schema=schema, encoder=bytes, decoder=bytes, format="binary")


def is_text(kind: Type) -> bool:
    """Return whether the type is text or unknown."""
    return kind.schema == "pg_catalog" and kind.name in _TEXT


def type_name(kind: Type) -> str:
    """Return the name of a type for CAST. Quoted, because unquoted `bit` and `char` have length one."""
    element, brackets = (kind.name[:-2], "[]") if kind.name.endswith("[]") else (kind.name, "")
    return ".".join('"{}"'.format(name.replace('"', '""')) for name in (kind.schema, element)) + brackets


def encoded(value: Json, type_name: str | None) -> Json:
    """Return a bound value as text: a list as a PostgreSQL array or as JSON, depending on the type."""
    if not isinstance(value, list):
        return value
    if type_name is None or not type_name.endswith("[]"):
        return exact_json.dumps(value).decode()
    return f"{{{','.join(_item(item, type_name) for item in value)}}}"


def _item(item: Json, type_name: str) -> str:
    """Return an item of an array as quoted text (PostgreSQL manual, §8.15.2)."""
    is_json = type_name.endswith(('"json"[]', '"jsonb"[]', "jsonb[]"))
    if item is None or (isinstance(item, list) and not is_json):
        return "NULL" if item is None else encoded(item, type_name)
    text = item if isinstance(item, str) and not is_json else exact_json.dumps(item).decode()
    return '"{}"'.format(text.replace("\\", "\\\\").replace('"', '\\"'))


def with_text_columns(text: str, columns: Sequence[Type]) -> str | None:
    """Return the statement with columns cast to text, or None if no column needs a cast."""
    written = [_column(f"c{number}", each) for number, each in enumerate(columns, start=1)]
    names = [f"c{number}" for number in range(1, len(columns) + 1)]
    if written == names:
        return None
    # Only a WITH clause can read the result of a statement that changes rows, and it cannot be nested.
    start, clause = _main_statement(text)
    result = f'"mcp-gateway"({", ".join(names)})'
    selected = ", ".join(written)
    return f'{text[:start]}{clause} {result} AS (\n{text[start:]}\n) SELECT {selected} FROM "mcp-gateway"'  # noqa: S608 - the operator's statement


def _column(name: str, kind: Type) -> str:
    element, brackets = kind.name.removesuffix("[]"), "[]" if kind.name.endswith("[]") else ""
    if kind.schema == "pg_catalog" and element in _LOSSLESS:
        return name
    text = f"CAST({name} AS text{brackets})"
    # The text is the shortest decimal. As float8, float4 would have more digits.
    return f"CAST({text} AS float8{brackets})" if element == "float4" else text


def _main_statement(text: str) -> tuple[int, str]:
    """Return the start of a statement after its WITH clause, and the text that adds an entry to that clause."""
    depth, is_with = 0, None
    for token in tokens_of(text, POSTGRESQL):
        word = token.text.upper() if token.kind is Kind.WORD else ""
        if is_with is None and token.kind not in {Kind.SPACE, Kind.COMMENT}:
            is_with = word == "WITH"
            if not is_with:
                break
        depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind is Kind.OTHER else 0
        if depth == 0 and word in _VERBS:
            return token.start, ","
    return 0, "WITH"


def _date(value: tuple[int]) -> str:
    """Convert days since 2000-01-01 to PostgreSQL's JSON format (asyncpg manual, `set_type_codec`)."""
    [days] = value
    if days in {-(2**31), 2**31 - 1}:
        return "infinity" if days > 0 else "-infinity"
    return "".join(_calendar(days))


def _timestamp(value: tuple[int], zone: str = "") -> str:
    """Convert microseconds since 2000-01-01 to PostgreSQL's JSON format."""
    [microseconds] = value
    if microseconds in {-(2**63), 2**63 - 1}:
        return "infinity" if microseconds > 0 else "-infinity"
    days, rest = divmod(microseconds, _DAY)
    date, era = _calendar(days)
    time = (dt.datetime(1, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=rest)).time()
    return f"{date}T{time.isoformat()}{zone}{era}"


def _timestamptz(value: tuple[int]) -> str:
    return _timestamp(value, "+00:00")


def _calendar(days: int) -> tuple[str, str]:
    """Return a date without its era, and the era."""
    cycles, day = divmod(_EPOCH - 1 + days, _FOUR_CENTURIES)
    date = dt.date.fromordinal(day + 1)
    year = date.year + 400 * cycles
    return f"{year if year > 0 else 1 - year:04}-{date:%m-%d}", "" if year > 0 else " BC"
