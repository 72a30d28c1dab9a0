"""PostgreSQL sessions with asyncpg. Server-side cursors fetch only the rows that are needed.

Values are exchanged as text, except for types that the driver converts without loss. A statement is prepared once to
learn its types, and again if casts are needed.

asyncpg sends a cancel request when a call is cancelled. The deadline is also set as `statement_timeout`.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import asyncpg
from asyncpg.prepared_stmt import PreparedStatement
from asyncpg.types import Type

from gateway import exact_json
from gateway.errors import ExecutionError
from gateway.executors.sql.connections import PooledEngine
from gateway.executors.sql.dialects import IGNORED, POSTGRESQL, StatementError, tokens_of
from gateway.executors.sql.pools import (
    DatabaseConnectionLostError,
    DatabaseProfile,
    DatabaseUnavailableError,
    Engine,
    Session,
    is_unavailable,
)
from gateway.executors.sql.query import BoundStatement
from gateway.executors.sql.rows import RowCollector
from gateway.json_types import Json

_MAX_PREPARED: Final = 100
"""The maximum number of prepared statements per connection. Lists of different lengths need different statements."""
_STOP_SECONDS: Final = 5.0
_SLACK_SECONDS: Final = 0.5
"""Seconds added to `statement_timeout`, so that the gateway normally cancels first."""
_JSON_TYPES: Final = frozenset({"json", "jsonb", "json[]", "jsonb[]"})
_ROLLED_BACK: Final = frozenset({"40001", "40P01"})
"""SQLSTATEs of a serialization failure and a deadlock. The transaction can succeed after a retry."""
_PARAMETER: Final = re.compile(r"\$(\d+)")

_RESET: Final = """
    CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ROLE; RESET ALL; UNLISTEN *; DISCARD TEMP; DISCARD SEQUENCES;
    SELECT pg_catalog.pg_advisory_unlock_all();
    SET intervalstyle = 'iso_8601'; SET datestyle = 'ISO';
    DO $$ DECLARE made text; BEGIN
        FOR made IN SELECT name FROM pg_catalog.pg_prepared_statements WHERE from_sql LOOP
            EXECUTE pg_catalog.format('DEALLOCATE %I', made);
        END LOOP;
    END $$
"""
"""The steps of DISCARD ALL (PostgreSQL manual), except that the driver's prepared statements are kept."""


Prepared = tuple[PreparedStatement, Mapping[int, str], Sequence[str], bool]
"""A prepared statement with:

- the casts of values, by number (from 1)
- the names of the columns
- whether each placeholder has a separate value (`BoundStatement.separate`)
"""
_PreparedStatements = OrderedDict[tuple[Any, ...], Prepared]
"""The prepared statements of one connection, most recently used last."""
_PREPARED: Final = "mcp-gateway prepared statements"


def open_engine(profile: DatabaseProfile, *, read_only: bool) -> Engine:
    async def new_session(raw: Any) -> Session:
        connection = raw.driver_connection
        if _PREPARED not in raw.info:
            # Use SET, because PgBouncer rejects unknown parameters in the startup packet.
            await connection.execute("SET intervalstyle = 'iso_8601'; SET datestyle = 'ISO'")
            raw.info[_PREPARED] = OrderedDict()
        return PostgresqlSession(connection, raw.info[_PREPARED], read_only=read_only)

    settings = {"server_settings": {"application_name": "mcp-gateway"}}
    return PooledEngine(profile.url, size=profile.size, connect_args=settings, new_session=new_session)


class PostgresqlSession:
    def __init__(self, connection: asyncpg.Connection, prepared: _PreparedStatements, *, read_only: bool) -> None:
        self._connection: Final = connection
        self._prepared: Final = prepared
        self._read_only: Final = read_only
        self._is_stale = False
        self._running: BoundStatement | None = None

    @property
    def is_usable(self) -> bool:
        return not (self._is_stale or self._connection.is_closed() or self._connection.is_in_transaction())

    async def begin(self, *, seconds: float, statements: int) -> None:  # noqa: ARG002 - part of `Session`
        # `statement_timeout` is a 32-bit integer, and 0 disables the timeout.
        milliseconds = max(1, min(int((seconds + _SLACK_SECONDS) * 1000), 2**31 - 1))
        # After the SELECT, no statement can make the transaction read-write.
        await self._connection.execute(
            f"BEGIN{' READ ONLY' if self._read_only else ''};"
            # Qualify the name, because search_path can select another function. `true` means SET LOCAL.
            f" SELECT pg_catalog.set_config('statement_timeout', '{milliseconds}', true)"
        )

    async def run(self, statement: BoundStatement, rows: RowCollector) -> None:
        self._running = statement
        prepared, types, columns, is_separate = await self._prepared_for(statement)
        bound = statement.separate() if is_separate and statement.separate is not None else statement
        values = [encoded(value, types.get(number)) for number, value in enumerate(bound.values, start=1)]
        if not columns:
            await prepared.fetch(*values)
            last = prepared.get_statusmsg().rpartition(" ")[2]  # of a command tag, such as `INSERT 0 3`
            rows.note_affected(int(last) if last.isdigit() else -1)
            return
        rows.begin(
            columns,
            json_columns=[
                index for index, each in enumerate(prepared.get_attributes()) if each.type.name in _JSON_TYPES
            ],
        )
        cursor = await prepared.cursor(*values)
        for wanted in rows.fetches():
            rows.add(await cursor.fetch(wanted))

    async def commit(self) -> None:
        await self._connection.execute("COMMIT")
        await self._reset(_RESET)

    async def roll_back(self) -> None:
        if not self._connection.is_in_transaction():
            return
        if self._read_only:  # a read-only transaction can leave only advisory locks
            await self._reset("ROLLBACK; SELECT pg_catalog.pg_advisory_unlock_all()")
        else:
            await self._connection.execute("ROLLBACK")
            await self._reset(_RESET)

    async def _reset(self, statements: str) -> None:
        """Remove session state. After a failure, the connection is not reused."""
        was_stale, self._is_stale = self._is_stale, True  # a cancellation can interrupt the reset
        with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            await self._connection.execute(statements)
            self._is_stale = was_stale

    async def stop(self) -> None:
        async with asyncio.timeout(_STOP_SECONDS):
            await self.roll_back()

    async def prepare(self, statement: BoundStatement) -> None:
        await self._connection.execute("BEGIN READ ONLY")
        try:
            await self._prepare(statement)
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            position = getattr(error, "position", None)
            raise StatementError(self._message(error), int(position) - 1 if position else None) from error
        finally:
            await self._connection.execute("ROLLBACK")

    async def _prepared_for(self, statement: BoundStatement) -> Prepared:
        # Two tools can have the same text with inputs of different types.
        key = statement.text, statement.uncast
        prepared = self._prepared.get(key)
        if prepared is None:
            prepared = self._prepared[key] = await self._prepare(statement)
            if len(self._prepared) > _MAX_PREPARED:
                # asyncpg closes the statement when the object is deleted.
                self._prepared.popitem(last=False)
        self._prepared.move_to_end(key)
        return prepared

    async def _prepare(self, statement: BoundStatement) -> Prepared:
        """Prepare a statement that takes values as text, and returns columns as text if the driver would lose data."""
        given = statement
        try:
            types, found = await self._typed(statement)
        except asyncpg.PostgresError as error:
            if statement.separate is None:
                raise
            statement = statement.separate()
            try:  # one input can be used with several types
                types, found = await self._typed(statement)
            except asyncpg.PostgresError:
                raise error from None
        text = statement.with_types(types)
        if text != statement.text:
            found = await self._described(text)
        columns = found.get_attributes()
        if (as_text := with_text_columns(text, [column.type for column in columns])) is not None:
            attempt = await self._attempt(as_text)
            # Some statements, such as CALL, are not allowed in a WITH clause and keep their columns.
            found = found if isinstance(attempt, Exception) else attempt
        return found, types, [column.name for column in columns], statement is not given

    async def _typed(self, statement: BoundStatement) -> tuple[dict[int, str], PreparedStatement]:
        """Return the types of values without a cast in the statement, and the statement prepared with these types."""
        said = {number: name for _, number, name in statement.uncast if name is not None}
        # If the server cannot infer an array's type, try JSON and then the array type from the schema.
        as_json = {number: "jsonb" if name.endswith("[]") else name for number, name in said.items()}
        attempts: tuple[dict[int, str], ...] = ({}, as_json, said) if said else ({},)
        errors: list[Exception] = []
        for types in attempts:
            if not isinstance(found := await self._attempt(statement.with_types(types)), Exception):
                break
            errors.append(found)
        else:
            raise errors[0]
        kinds = found.get_parameters()
        for _, number, name in statement.uncast:
            kind = kinds[number - 1]
            if name == "numeric" and number not in types:
                # Only numeric keeps all digits. float4 is kept, because a float4 rarely equals a numeric value.
                types[number] = "float4" if kind.name == "float4" else "numeric"
            elif number not in types and (name is not None or not is_text(kind)):
                types[number] = "jsonb" if is_text(kind) else type_name(kind)
        return types, found

    async def _attempt(self, text: str) -> PreparedStatement | Exception:
        """Prepare a statement. If the server rejects it, return the error and restore the transaction."""
        await self._connection.execute("SAVEPOINT attempt")
        try:
            return await self._described(text)
        except asyncpg.PostgresError as error:
            await self._connection.execute("ROLLBACK TO SAVEPOINT attempt")
            return error

    async def _described(self, text: str) -> PreparedStatement:
        try:
            return await self._connection.prepare(text)
        except asyncpg.UnsupportedClientFeatureError:
            # Register codecs for types that asyncpg cannot decode. The codecs are never used, because columns of such
            # types are cast to text.
            types = await self._connection.fetch(
                "SELECT nspname, typname FROM pg_catalog.pg_type JOIN pg_catalog.pg_namespace n ON n.oid = typnamespace"
                " WHERE typtype = 'b' AND typelem = 0 AND NOT (nspname = 'pg_catalog' AND typname = ANY($1))",
                _LOSSLESS | _AS_JSON,  # CALL keeps its dates
            )
            for schema, name in types:
                await self._connection.set_type_codec(
                    name, schema=schema, encoder=bytes, decoder=bytes, format="binary"
                )
            return await self._connection.prepare(text)

    def failure_of(self, error: Exception) -> ExecutionError | None:
        state = getattr(error, "sqlstate", None) or ""
        if state == "0A000" and "cached plan" in str(error):
            self._is_stale = True  # a column has changed, and "cached plan must not change result type"
            return DatabaseUnavailableError(str(error))
        if self._connection.is_closed() or is_unavailable(state):
            return DatabaseConnectionLostError(str(error) or "the connection was lost")
        # Do not use DatabaseConnectionLostError, because the server has rolled back.
        if state in _ROLLED_BACK:
            return DatabaseUnavailableError(self._message(error))
        if isinstance(error, asyncpg.PostgresError | asyncpg.InterfaceError | OverflowError | ValueError):
            return ExecutionError(self._message(error))
        return None

    def _message(self, error: Exception) -> str:
        """Return the message and hint of an error. The detail is omitted, because it can contain rows."""
        text = str(getattr(error, "message", None) or error)
        hint = getattr(error, "hint", None)
        if self._running is not None:
            names = dict(enumerate(self._running.names, start=1))
            text = _PARAMETER.sub(lambda found: f":{names.get(int(found[1]), found[1])}", text)
        return text if not hint else f"{text}. {hint}"


# fmt: off
_LOSSLESS: Final = frozenset({
    "bool", "int2", "int4", "int8", "oid", "float8", "numeric", "text", "varchar", "bpchar", "name", "xml", "unknown",
    "json", "jsonb", "bytea", "uuid", "inet", "cidr", "void",
})
# fmt: on
"""Types that the driver reads without loss. Other types are converted to JSON or cast to text."""
_AS_JSON: Final = frozenset({"date", "timestamp", "timestamptz", "float4"})
"""Types whose JSON is ISO 8601 or the shortest decimal. Python's dates have no infinity and end with year 9999."""
_TEXT: Final = frozenset({"text", "varchar", "bpchar", "name", "unknown"})
_VERBS: Final = frozenset({"SELECT", "VALUES", "TABLE", "INSERT", "UPDATE", "DELETE", "MERGE"})
"""Words that can start a statement after its WITH clause."""


def is_text(kind: Type) -> bool:
    """Return whether the type is text or unknown."""
    return kind.schema == "pg_catalog" and kind.name in _TEXT


def type_name(kind: Type) -> str:
    """Return the quoted name of a type for CAST. Without quotation marks, `bit` and `char` have length one."""
    element, brackets = (kind.name[:-2], "[]") if kind.name.endswith("[]") else (kind.name, "")
    return ".".join('"{}"'.format(name.replace('"', '""')) for name in (kind.schema, element)) + brackets


def encoded(value: Json, type_name: str | None) -> Json:
    """Return a list as a PostgreSQL array or as JSON, depending on the type. Return other values unchanged."""
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
    """Return the statement with columns converted to JSON or text, or None if no column needs this."""
    written = [_column(f"c{number}", each) for number, each in enumerate(columns, start=1)]
    names = [f"c{number}" for number in range(1, len(columns) + 1)]
    if written == names:
        return None
    # Only a WITH clause can read the result of a statement that changes rows, and such a clause cannot be nested.
    start, clause = _main_statement(text)
    result = f'"mcp-gateway"({", ".join(names)})'
    selected = ", ".join(written)
    return f'{text[:start]}{clause} {result} AS (\n{text[start:]}\n) SELECT {selected} FROM "mcp-gateway"'  # noqa: S608 - the operator's statement


def _column(name: str, kind: Type) -> str:
    element, brackets = kind.name.removesuffix("[]"), "[]" if kind.name.endswith("[]") else ""
    if kind.schema == "pg_catalog" and element in _LOSSLESS:
        return name
    if kind.schema == "pg_catalog" and element in _AS_JSON:
        return f"pg_catalog.to_json({name})"
    return f"CAST({name} AS text{brackets})"


def _main_statement(text: str) -> tuple[int, str]:
    """Return the offset at which a WITH entry can be inserted, and the text that precedes the entry: `,` or `WITH`."""
    depth, is_with = 0, None
    for token in tokens_of(text, POSTGRESQL):
        word = token.text.upper() if token.kind == "word" else ""
        if is_with is None and token.kind not in IGNORED:
            is_with = word == "WITH"
            if not is_with:
                break
        depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "other" else 0
        if depth == 0 and word in _VERBS:
            return token.start, ","
    return 0, "WITH"
