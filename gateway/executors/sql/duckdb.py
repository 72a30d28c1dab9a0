"""DuckDB sessions. Each call opens the file read-only, so that other processes can write to it between calls."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import duckdb

from gateway.errors import ExecutionError
from gateway.executors.sql.dialects import DUCKDB, StatementError, first_word
from gateway.executors.sql.pools import DatabaseProfile, DatabaseUnavailableError, Engine, Session, offset_of_error
from gateway.executors.sql.query import BoundStatement
from gateway.executors.sql.rows import RowCollector

T = TypeVar("T")

_INTERRUPT_EVERY: Final = 0.02
"""Seconds between repeated interrupts, because an interrupt has no effect before a statement starts."""
_SETTINGS: Final[dict[str, str | bool | int | float | list[str]]] = {
    # COPY can write files even if the database is read-only.
    "enable_external_access": False,
    # Use no temporary files, because queries could read the files of other calls.
    "temp_directory": "",
    "autoinstall_known_extensions": False,
    "lock_configuration": True,
    "TimeZone": "UTC",
}
_UNPREPARED: Final = frozenset({"EXPLAIN", "DESCRIBE", "DESC", "SHOW", "SUMMARIZE", "PRAGMA", "CALL"})
"""The first words of statements that EXPLAIN does not accept."""


class DuckdbEngine:
    def __init__(self, profile: DatabaseProfile) -> None:
        self._path: Final = profile.url
        self._free: Final = asyncio.Semaphore(profile.size)
        self._threads: Final = ThreadPoolExecutor(profile.size, thread_name_prefix="duckdb")
        self.open = 0

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        async with self._free:
            session = DuckdbSession(self._path, self._threads)
            self.open += 1
            try:
                yield session
            finally:
                self.open -= 1
                await session.close()

    async def dispose(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def open_engine(profile: DatabaseProfile, *, read_only: bool) -> Engine:
    assert read_only  # noqa: S101 - `writes` is an error when the configuration is loaded
    return DuckdbEngine(profile)


class DuckdbSession:
    def __init__(self, path: str, threads: ThreadPoolExecutor) -> None:
        self._path: Final = path
        self._threads: Final = threads
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._running: Future[Any] | None = None

    @property
    def is_usable(self) -> bool:
        return False

    async def begin(self, *, seconds: float, statements: int) -> None:  # noqa: ARG002 - `stop` interrupts in time
        await self._in_thread(self._connect)

    def _connect(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            self._connection = duckdb.connect(self._path, read_only=True, config=_SETTINGS)
        return self._connection

    async def run(self, statement: BoundStatement, rows: RowCollector) -> None:
        await self._in_thread(self._collect, statement.text, statement.values, rows)

    def _collect(self, text: str, values: Sequence[Any], rows: RowCollector) -> None:
        cursor = self._connect().execute(text, list(values))
        if cursor.description is None:
            return
        rows.begin(
            [column[0] for column in cursor.description],
            json_columns=[index for index, column in enumerate(cursor.description) if str(column[1]) == "JSON"],
        )
        for wanted in rows.fetches():
            rows.add(cursor.fetchmany(wanted))

    async def commit(self) -> None:
        """Do nothing: the database is read-only."""

    async def roll_back(self) -> None:
        """Do nothing: the database is read-only."""

    async def stop(self) -> None:
        while self._running is not None and not self._running.done():
            if self._connection is not None:
                self._connection.interrupt()
            await asyncio.sleep(_INTERRUPT_EVERY)

    async def close(self) -> None:
        if self._connection is not None:
            await self._in_thread(self._connection.close)

    async def prepare(self, statement: BoundStatement) -> None:
        if first_word(statement.text, DUCKDB).text.upper() in _UNPREPARED:
            return
        connection = await self._in_thread(self._connect)
        try:
            await self._in_thread(connection.execute, f"EXPLAIN {statement.text}", list(statement.values))
        except duckdb.Error as error:
            raise StatementError(_message(error), offset_of_error(_message(error), statement.text)) from error

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        running = self._running = self._threads.submit(function, *arguments)
        return await asyncio.wrap_future(running)

    def failure_of(self, error: Exception) -> ExecutionError | None:
        match error:
            case duckdb.IOException() if "lock on file" in str(error):
                return DatabaseUnavailableError("another process has the file open for writing")
            case duckdb.Error() | OverflowError():
                return ExecutionError(_message(error))
            case _:
                return None


def _message(error: Exception) -> str:
    """Return the error message without the statement, which follows after the first line."""
    return str(error).partition("\n")[0]
