"""Sessions with PostgreSQL, by asyncpg: cursors on the server, so that rows which nobody wants are never sent.

A cancelled call reaches the server: asyncpg sends a cancel request when what awaits it is cancelled, and the deadline
is the server's own `statement_timeout` too.
"""

import asyncio
import re
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from gateway.errors import ExecutionError
from gateway.executors.sql.query import BoundStatement
from gateway.executors.sql.rows import RowCollector
from gateway.executors.sql.sessions import ConnectionLostError, DatabaseAwayError, StatementRefusedError, is_away

if TYPE_CHECKING:
    import asyncpg
    from asyncpg.prepared_stmt import PreparedStatement

_MAX_PREPARED: Final = 100
"""Statements that a connection keeps prepared: lists of different lengths are different statements."""
_STOP_SECONDS: Final = 5.0
_SLACK_SECONDS: Final = 0.5
"""Between the deadline, at which a cancel request is sent, and the server's own: it is for a gateway that is gone."""
_JSON_TYPES: Final = frozenset({"json", "jsonb", "json[]", "jsonb[]"})
_ROLLED_BACK: Final = frozenset({"40001", "40P01"})
"""SQLSTATEs of a transaction that lost against another, and may win the next time."""
_STALE: Final = "0A000"
"""SQLSTATE feature_not_supported: "cached plan must not change result type"."""
_PARAMETER: Final = re.compile(r"\$(\d+)")

_PreparedStatements = OrderedDict[str, "PreparedStatement"]
"""The prepared statements of one connection, the latest used last."""


class PostgresqlSession:
    def __init__(self, connection: "asyncpg.Connection", prepared: _PreparedStatements, *, read_only: bool) -> None:
        self._connection: Final = connection
        self._prepared: Final = prepared
        self._read_only: Final = read_only
        self._is_stale = False
        self._running: BoundStatement | None = None

    @property
    def is_usable(self) -> bool:
        return not (self._is_stale or self._connection.is_closed() or self._connection.is_in_transaction())

    async def begin(self, *, seconds: float, statements: int) -> None:  # noqa: ARG002 - one is a transaction as well
        # 0 would switch `statement_timeout` off, and it is a 32-bit integer.
        milliseconds = max(1, min(int((seconds + _SLACK_SECONDS) * 1000), 2**31 - 1))
        # The SELECT takes a snapshot, after which no statement can make the transaction read-write any more.
        await self._connection.execute(
            f"BEGIN{' READ ONLY' if self._read_only else ''};"
            # With its schema, for the database's search_path may have another `set_config`; `true` is SET LOCAL.
            f" SELECT pg_catalog.set_config('statement_timeout', '{milliseconds}', true)"
        )

    async def run(self, statement: BoundStatement, rows: RowCollector) -> None:
        self._running = statement
        prepared = await self._prepare(statement.text)
        attributes = prepared.get_attributes()
        if not attributes:
            await prepared.fetch(*statement.values)
            rows.note_affected(_affected(prepared.get_statusmsg()))
            return
        rows.begin(
            [attribute.name for attribute in attributes],
            json_columns=[index for index, each in enumerate(attributes) if each.type.name in _JSON_TYPES],
        )
        cursor = await prepared.cursor(*statement.values)
        while wanted := rows.wanted:
            fetched = await cursor.fetch(wanted)
            rows.add([tuple(record) for record in fetched])
            if len(fetched) < wanted:
                return

    async def commit(self) -> None:
        await self._connection.execute("COMMIT")

    async def roll_back(self) -> None:
        if self._connection.is_in_transaction():
            await self._connection.execute("ROLLBACK")

    async def stop(self) -> None:
        async with asyncio.timeout(_STOP_SECONDS):
            await self.roll_back()

    async def prepare(self, statement: BoundStatement) -> None:
        import asyncpg  # noqa: PLC0415 - of the extra

        try:
            await self._connection.prepare(statement.text)
        except asyncpg.PostgresError as error:
            position = getattr(error, "position", None)
            raise StatementRefusedError(self._message(error), int(position) - 1 if position else None) from error

    async def _prepare(self, text: str) -> "PreparedStatement":
        prepared = self._prepared.get(text)
        if prepared is None:
            prepared = self._prepared[text] = await self._connection.prepare(text)
            if len(self._prepared) > _MAX_PREPARED:
                # asyncpg closes a statement on the server when its object is gone.
                self._prepared.popitem(last=False)
        self._prepared.move_to_end(text)
        return prepared

    def failure_of(self, error: Exception) -> ExecutionError | None:
        import asyncpg  # noqa: PLC0415 - of the extra

        state = getattr(error, "sqlstate", None) or ""
        if state == _STALE and "cached plan" in str(error):
            self._is_stale = True  # a column has changed since the statement was prepared
            return DatabaseAwayError(str(error))
        if self._connection.is_closed() or is_away(state):
            return ConnectionLostError(str(error) or "the connection was lost")
        # Not ConnectionLostError: the server itself rolled back, so that nothing was committed.
        if state in _ROLLED_BACK:
            return DatabaseAwayError(self._message(error))
        if isinstance(error, asyncpg.PostgresError | asyncpg.InterfaceError | OverflowError | ValueError):
            return ExecutionError(self._message(error))
        return None

    def _message(self, error: Exception) -> str:
        """The message of an error with its hint. Its detail may show rows that the caller must not see."""
        text = str(getattr(error, "message", None) or error)
        hint = getattr(error, "hint", None)
        if self._running is not None:
            names = dict(enumerate(self._running.names, start=1))
            text = _PARAMETER.sub(lambda found: f":{names.get(int(found[1]), found[1])}", text)
        return text if not hint else f"{text}. {hint}"


def _affected(status: str) -> int:
    """The rows that a command changed, as its tag says: `INSERT 0 3`, `UPDATE 3`; -1 where it says none."""
    last = status.rpartition(" ")[2]
    return int(last) if last.isdigit() else -1
