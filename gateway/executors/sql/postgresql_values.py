"""Convert values to and from PostgreSQL's own text, where the driver's objects lose something or have no JSON form."""

import datetime as dt
from collections.abc import Sequence
from typing import Any, Final, Protocol

from gateway import exact_json
from gateway.executors.sql.tokens import Kind, tokens_of
from gateway.json_types import Json

# fmt: off
_READ_BY_THE_DRIVER: Final = frozenset({
    "bool", "int2", "int4", "int8", "oid", "float8", "numeric", "text", "varchar", "bpchar", "name", "xml", "unknown",
    "json", "jsonb", "bytea", "uuid", "inet", "cidr", "date", "timestamp", "timestamptz", "void",
})
# fmt: on
"""Types that the driver reads without loss. PostgreSQL writes the values of its other types as text."""
_TEXT: Final = frozenset({"text", "varchar", "bpchar", "name", "unknown"})
_VERBS: Final = frozenset({"SELECT", "VALUES", "TABLE", "INSERT", "UPDATE", "DELETE", "MERGE"})
"""The words that a statement begins with after its WITH clause."""
_DAY: Final = 86_400_000_000
"""Microseconds."""
_EPOCH: Final = dt.date(2000, 1, 1).toordinal()
_FOUR_CENTURIES: Final = 146_097
"""Days after which the Gregorian calendar repeats."""


class Type(Protocol):
    """The type of a value or a column, as asyncpg describes it."""

    name: str
    schema: str


async def exchange_times_exactly(connection: Any) -> None:
    """Have a new connection return times as ISO 8601: Python's own have no infinity and end with year 9999."""
    # Not with the connection's startup packet, of which PgBouncer refuses parameters that it does not know.
    await connection.execute("SET intervalstyle = 'iso_8601'; SET datestyle = 'ISO'")
    for name, read in (("date", _date), ("timestamp", _timestamp), ("timestamptz", _timestamptz)):
        await connection.set_type_codec(name, schema="pg_catalog", encoder=tuple, decoder=read, format="tuple")


async def describe_rows(connection: Any) -> None:
    """Have a connection take a row as one value that has others in it which asyncpg would read as text.

    It does not read them: a column of such a type is cast to text.
    """
    types = await connection.fetch(
        "SELECT nspname, typname FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = typnamespace"
        " WHERE typtype = 'b' AND typelem = 0 AND NOT (nspname = 'pg_catalog' AND typname = ANY($1))",
        _READ_BY_THE_DRIVER,
    )
    for schema, name in types:
        await connection.set_type_codec(name, schema=schema, encoder=bytes, decoder=bytes, format="binary")


def is_text(kind: Type) -> bool:
    """Whether text is a value of the type, with nothing to be read in it; also where no type could be told."""
    return kind.schema == "pg_catalog" and kind.name in _TEXT


def type_name(kind: Type) -> str:
    """The name of a type for a CAST. Quoted, or `bit` and `char` would be cut to one."""
    element, brackets = (kind.name[:-2], "[]") if kind.name.endswith("[]") else (kind.name, "")
    return ".".join('"{}"'.format(name.replace('"', '""')) for name in (kind.schema, element)) + brackets


def encoded(value: Json, type_name: str | None) -> Json:
    """A bound value as text: a list as PostgreSQL's array if the type is one, otherwise as JSON."""
    if not isinstance(value, list):
        return value
    if type_name is None or not type_name.endswith("[]"):
        return exact_json.dumps(value).decode()
    return f"{{{','.join(_item(item, type_name) for item in value)}}}"


def _item(item: Json, type_name: str) -> str:
    """An item of an array as text, which may always be quoted (PostgreSQL's manual, §8.15.2)."""
    is_json = type_name.endswith(('"json"[]', '"jsonb"[]', "jsonb[]"))
    if item is None or (isinstance(item, list) and not is_json):
        return "NULL" if item is None else encoded(item, type_name)
    text = item if isinstance(item, str) and not is_json else exact_json.dumps(item).decode()
    return '"{}"'.format(text.replace("\\", "\\\\").replace('"', '\\"'))


def with_text_columns(text: str, columns: Sequence[Type]) -> str | None:
    """The statement with the columns that have no JSON form as text; None if there are none."""
    written = [_column(f"c{number}", each) for number, each in enumerate(columns, start=1)]
    names = [f"c{number}" for number in range(1, len(columns) + 1)]
    if written == names:
        return None
    # A statement that changes rows can be read from in a WITH clause only, which cannot hold another one.
    start, clause = _main_statement(text)
    result = f'"mcp-gateway"({", ".join(names)})'
    selected = ", ".join(written)
    return f'{text[:start]}{clause} {result} AS (\n{text[start:]}\n) SELECT {selected} FROM "mcp-gateway"'  # noqa: S608 - the operator's statement


def _column(name: str, kind: Type) -> str:
    element, brackets = kind.name.removesuffix("[]"), "[]" if kind.name.endswith("[]") else ""
    if kind.schema == "pg_catalog" and element in _READ_BY_THE_DRIVER:
        return name
    text = f"CAST({name} AS text{brackets})"
    # As the shortest decimal of its 32 bits, which as 64 bits would have further digits.
    return f"CAST({text} AS float8{brackets})" if element == "float4" else text


def _main_statement(text: str) -> tuple[int, str]:
    """The start of a statement behind its own WITH clause, and what begins one more entry of that clause."""
    depth, is_with = 0, None
    for token in tokens_of(text, dialect="postgresql"):
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
    """A date as PostgreSQL writes it in JSON, from the days since 2000-01-01 (asyncpg's manual, `set_type_codec`)."""
    [days] = value
    if days in {-(2**31), 2**31 - 1}:
        return "infinity" if days > 0 else "-infinity"
    return "".join(_calendar(days))


def _timestamp(value: tuple[int], zone: str = "") -> str:
    """A time as PostgreSQL writes it in JSON, from the microseconds since 2000-01-01."""
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
    """A date without its era, and the era."""
    cycles, day = divmod(_EPOCH - 1 + days, _FOUR_CENTURIES)
    date = dt.date.fromordinal(day + 1)
    year = date.year + 400 * cycles
    return f"{year if year > 0 else 1 - year:04}-{date:%m-%d}", "" if year > 0 else " BC"
