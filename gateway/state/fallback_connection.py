"""A connection to the file of the state, and to memory while the file cannot be written. Used in one thread.

A full disk, a read-only or broken file, a lock of somebody else's: the rows are copied into memory, and all goes on
there. From time to time the file is tried again, and gets the rows back. A broken one is put aside first.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import structlog

from gateway.json_types import Json
from gateway.state.sqlite_file import (
    NewerSchemaError,
    Schema,
    copy_rows,
    is_broken,
    is_fault,
    open_file,
    open_memory,
    put_aside,
)

log: Final = structlog.get_logger()

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
"""Reads and writes rows. It may be called again after a fault, so it does nothing else."""


class NotDurableError(Exception):
    """The file cannot be written now; its text is why."""


class SqliteStatement(msgspec.Struct, frozen=True):
    """Work that is one statement, which SQLite does whole or not at all; its rows are returned."""

    query: str
    values: tuple[Json, ...] = ()

    def __call__(self, connection: sqlite3.Connection) -> list[tuple[Json, ...]]:
        return connection.execute(self.query, self.values).fetchall()


class Transaction(msgspec.Struct, eq=False):
    """Work to be done, who waits for it, if anybody does, and what came of it."""

    work: Work[Json]
    durable: bool = False
    answer: asyncio.Future[Json] | None = None
    outcome: tuple[Json, BaseException | None] = (None, None)

    def finish(self, result: Json, error: BaseException | None = None) -> None:
        self.outcome = (result, error)


class FallbackConnection:
    """Does transactions in the file, or else in memory. `problem`, `faults` and `put_aside` may be read by anybody."""

    def __init__(
        self,
        path: Path | None,
        schemas: Sequence[Schema],
        *,
        why_memory: str,
        retry_seconds: float,
    ) -> None:
        """Open nothing yet; see `Database`."""
        self.path: Final = path
        self.faults: Final[dict[str, int]] = {}
        """How often the file could not be written, by SQLite's name of the reason."""
        self.problem = why_memory
        """Why nothing is written to the file now; empty while all is."""
        self.put_aside: Path | None = None
        """Where the broken file lies, if there was one."""
        self._schemas: Final = tuple(schemas)
        self._retry_seconds: Final = retry_seconds
        self._connection: sqlite3.Connection
        self._is_file = False
        self._inode = 0
        self._has_all = False
        """Whether memory has all that the file had, so that it may replace the file's rows."""
        self._retry_at = 0.0

    def open(self) -> None:
        self._connection = open_memory(self._schemas)
        self.recover()

    def close(self) -> None:
        self._connection.close()

    @property
    def seconds_to_retry(self) -> float | None:
        """The time until the file is to be tried again; None if it is in use, or there is none."""
        return None if self._is_file or self.path is None else max(0.0, self._retry_at - time.monotonic())

    def recover(self) -> None:
        """Try the file again, if that is due."""
        if self.path is not None and self.seconds_to_retry == 0:
            self._recover(self.path)

    def do(self, jobs: Sequence[Transaction]) -> None:
        """Do jobs in the file; after a fault, or without a file, in memory."""
        if self._is_file and self._has_moved():
            self._fail(OSError("the file was moved or deleted"))
        if self._is_file:
            try:
                self._transact(jobs)
            except sqlite3.Error as error:
                self._fail(error)
            else:
                return
        for job in jobs:
            # All of them, done or not: the fault has rolled the whole transaction back, so nothing is done twice.
            job.finish(None, NotDurableError(self.problem or "no state directory") if job.durable else None)
        others = [job for job in jobs if not job.durable]
        try:
            if others:
                self._transact(others)
        except sqlite3.Error as error:  # out of memory
            for job in others:
                job.finish(None, error)

    def _transact(self, jobs: Sequence[Transaction]) -> None:
        """Do jobs and commit them together, each of which is undone alone if it fails.

        Raises:
            sqlite3.Error: a fault of the file, after which none of them is done.
        """
        connection = self._connection
        try:
            # SQLite makes one statement a transaction by itself. IMMEDIATE: the lock of another process shows before
            # work is done, and not in the middle of it (https://www.sqlite.org/lang_transaction.html).
            if len(jobs) > 1 or not isinstance(jobs[0].work, SqliteStatement):
                connection.execute("BEGIN IMMEDIATE")
            for job in jobs:
                self._attempt(job, is_alone=len(jobs) == 1)
            # None is open after a job that was alone and failed, or that was one statement.
            if connection.in_transaction:
                connection.execute("COMMIT")
        except sqlite3.Error:
            # SQLite may have rolled back by itself after such an error; then ROLLBACK fails, and does no harm
            # (https://www.sqlite.org/lang_transaction.html, "Response To Errors Within A Transaction").
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise

    def _attempt(self, job: Transaction, *, is_alone: bool) -> None:
        """Do a job within the open transaction, and undo it if it fails.

        Raises:
            sqlite3.Error: a fault of the file.
        """
        connection = self._connection
        has_savepoint = not (is_alone or isinstance(job.work, SqliteStatement))
        if has_savepoint:
            connection.execute("SAVEPOINT job")
        try:
            job.finish(job.work(connection))
        except Exception as error:  # Boundary: whoever asked for the work is told
            if is_fault(error):
                raise
            job.finish(None, error)
            if has_savepoint:
                connection.execute("ROLLBACK TO job")
            elif is_alone and connection.in_transaction:
                connection.execute("ROLLBACK")
        if has_savepoint:
            # ROLLBACK TO leaves the savepoint open (https://www.sqlite.org/lang_savepoint.html): it ends here.
            connection.execute("RELEASE job")

    def _fail(self, error: sqlite3.Error | OSError) -> None:
        """Go on in memory, with what can be read of the file."""
        assert self.path is not None  # noqa: S101 - there was a file
        memory = open_memory(self._schemas)
        memory.execute("BEGIN")
        self._has_all = copy_rows(self._connection, memory, replace=True)
        memory.execute("COMMIT")
        self._connection.close()
        self._connection, self._is_file = memory, False
        self._say(error)
        if is_broken(error):
            self._put_aside(self.path)
            self._retry_at = 0.0

    def _recover(self, path: Path) -> None:
        """Give the file the rows that memory has, and go on there."""
        self._retry_at = time.monotonic() + self._retry_seconds
        try:
            file = self._opened(path)
        except (sqlite3.Error, NewerSchemaError, OSError) as error:
            return self._say(error)
        try:
            file.execute("BEGIN IMMEDIATE")
            copy_rows(self._connection, file, replace=self._has_all)
            file.execute("COMMIT")
            # Which file it is: `_has_moved` compares it before each write.
            self._inode = path.stat().st_ino
        except (sqlite3.Error, OSError) as error:
            file.close()
            return self._say(error)
        self._connection.close()
        self._connection, self._is_file = file, True
        if self.problem:
            log.info("state is written again", file=str(path))
        self.problem = ""
        return None

    def _opened(self, path: Path) -> sqlite3.Connection:
        try:
            return open_file(path, self._schemas)
        except sqlite3.DatabaseError as error:
            if not is_broken(error):
                raise
            self._say(error)
            self._put_aside(path)
            return open_file(path, self._schemas)

    def _put_aside(self, path: Path) -> None:
        try:
            self.put_aside = put_aside(path)
        except OSError as error:
            return self._say(error)
        log.error("broken state file put aside", file=str(self.put_aside))
        return None

    def _say(self, error: Exception) -> None:
        """Log why the file is not written, once until it is or the reason is another."""
        reason = getattr(error, "sqlite_errorname", type(error).__name__)
        self.faults[reason] = self.faults.get(reason, 0) + 1
        problem = f"{self.path}: {error}"
        if problem != self.problem:
            log.error("state is not written; it is kept in memory", problem=problem, reason=reason)
        self.problem = problem

    def _has_moved(self) -> bool:
        """Whether the path is another file by now: SQLite would write on to one that nobody finds."""
        try:
            return self.path is None or self.path.stat().st_ino != self._inode
        except OSError:
            return True
