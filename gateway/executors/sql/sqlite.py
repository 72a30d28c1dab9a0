"""SQLite sessions with aiosqlite, which runs each connection in a thread.

Read-only sessions open the file with `mode=ro` and set `query_only`. An authorizer rejects ATTACH, which would give
access to other files.
"""

import asyncio
import sqlite3
from typing import Any, Final
from urllib.parse import quote

import aiosqlite
from sqlalchemy import URL

from gateway.errors import ExecutionError
from gateway.executors.sql.connections import PooledEngine
from gateway.executors.sql.dialects import SQLITE, StatementError, first_word
from gateway.executors.sql.pools import DatabaseProfile, DatabaseUnavailableError, Engine, Session, offset_of_error
from gateway.executors.sql.query import BoundStatement
from gateway.executors.sql.rows import RowCollector

_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_INTERRUPT_EVERY: Final = 0.02
"""Seconds between repeated interrupts, because an interrupt has no effect before a statement starts."""
_SECURED: Final = "mcp-gateway secured"


def open_engine(profile: DatabaseProfile, *, read_only: bool) -> Engine:
    # Only a URI can set the mode, so a `?` in the path must be percent-encoded.
    mode = {"mode": "ro" if read_only else "rwc", "uri": "true"}
    url = URL.create("sqlite+aiosqlite", database=f"file:{quote(profile.url)}", query=mode)

    async def new_session(raw: Any) -> Session:
        connection = raw.driver_connection
        if _SECURED not in raw.info:  # kept as long as the connection
            await connection.set_authorizer(_authorize)
            # SQLite enforces foreign keys only if the connection enables the check.
            await connection.execute(f"PRAGMA {'query_only' if read_only else 'foreign_keys'} = ON")
            raw.info[_SECURED] = True
        return SqliteSession(connection, read_only=read_only)

    # Wait only briefly for a lock, because the executor retries.
    return PooledEngine(url, size=profile.size, connect_args={"timeout": 0.25}, new_session=new_session)


def _authorize(action: int, *_: object) -> int:
    return sqlite3.SQLITE_DENY if action in {sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH} else sqlite3.SQLITE_OK


class SqliteSession:
    def __init__(self, connection: aiosqlite.Connection, *, read_only: bool) -> None:
        self._connection: Final = connection
        self._read_only: Final = read_only
        self._has_temporary = False

    @property
    def is_usable(self) -> bool:
        return not (self._connection.in_transaction or self._has_temporary)

    async def begin(self, *, seconds: float, statements: int) -> None:  # noqa: ARG002 - `stop` interrupts in time
        if not self._read_only:
            await self._connection.execute("BEGIN IMMEDIATE")  # waits for the write lock now
        elif statements > 1:
            await self._connection.execute("BEGIN")  # a single statement needs no transaction

    async def run(self, statement: BoundStatement, rows: RowCollector) -> None:
        cursor = await self._connection.execute(statement.text, statement.values)
        if cursor.description is None:
            rows.note_affected(cursor.rowcount)
            return
        rows.begin([column[0] for column in cursor.description])
        try:
            for wanted in rows.fetches():
                rows.add(list(await cursor.fetchmany(wanted)))
        except asyncio.CancelledError:
            raise  # `close` would wait in the thread for the end of the statement, which `stop` interrupts.
        except Exception:
            # A row that cannot be read, such as invalid UTF-8, leaves the statement unfinished.
            await cursor.close()
            raise
        # An unfinished statement keeps its lock, and an interrupt would also stop statements of later calls.
        await cursor.close()

    async def commit(self) -> None:
        await self._connection.commit()
        cursor = await self._connection.execute("SELECT 1 FROM temp.sqlite_master LIMIT 1")
        # Temporary tables, views and triggers would be visible to later calls.
        self._has_temporary = await cursor.fetchone() is not None
        await cursor.close()

    async def roll_back(self) -> None:
        if self._connection.in_transaction:
            await self._connection.rollback()

    async def stop(self) -> None:
        ending = asyncio.ensure_future(self._connection.rollback())  # queued in the thread
        while not ending.done():
            await self._connection.interrupt()
            await asyncio.wait({ending}, timeout=_INTERRUPT_EVERY)
        ending.result()

    async def prepare(self, statement: BoundStatement) -> None:
        try:
            # EXPLAIN compiles a statement without running it.
            explain = "" if first_word(statement.text, SQLITE).text.upper() == "EXPLAIN" else "EXPLAIN "
            cursor = await self._connection.execute(f"{explain}{statement.text}", statement.values)
            await cursor.close()
        except sqlite3.Error as error:
            raise StatementError(str(error), offset_of_error(str(error), statement.text)) from error

    def failure_of(self, error: Exception) -> ExecutionError | None:
        match error:
            # The lowest byte of an extended result code is the primary code.
            case sqlite3.Error(sqlite_errorcode=int(code)) if code & 0xFF in _BUSY:
                return DatabaseUnavailableError(str(error))
            case sqlite3.Error() | sqlite3.Warning():
                return ExecutionError(str(error))
            case OverflowError():
                return ExecutionError("an integer exceeds SQLite's 64 bits")
            case _:
                return None
