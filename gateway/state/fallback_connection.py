"""A connection to the state file, or to memory while the file fails. Only one thread can use a connection.

If the disk is full, or the file is read-only, corrupt or locked, the connection copies all rows to memory. It retries
the file regularly, and copies the rows back when the file works again. A corrupt file is renamed and replaced.
"""

import sqlite3
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import structlog

from gateway.errors import NotStoredError
from gateway.json_types import Json
from gateway.state.sqlite_file import (
    copy_rows,
    is_broken,
    is_fault,
    open_file,
    open_memory,
    put_aside,
)

log: Final = structlog.get_logger(__name__)

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
"""A function that reads and writes rows. It can run twice if it or the file fails, so it must have no other effects."""


class SqliteStatement(msgspec.Struct, frozen=True):
    """A single SQL statement, which SQLite executes atomically. Calling the object returns the rows."""

    query: str
    values: tuple[Json, ...] = ()

    def __call__(self, connection: sqlite3.Connection) -> list[tuple[Json, ...]]:
        return connection.execute(self.query, self.values).fetchall()


class Transaction(msgspec.Struct, eq=False):
    work: Work[Json]
    future: Future[Json]
    durable: bool = False


class FallbackConnection:
    """Runs transactions in the file or in memory. Other threads can read `problem`, `faults` and `put_aside`."""

    def __init__(
        self,
        path: Path | None,
        tables: Sequence[str],
        *,
        why_memory: str,
        retry_seconds: float,
    ) -> None:
        self.path: Final = path
        self.faults: Final[dict[str, int]] = {}
        """The number of failures by SQLite error name."""
        self.problem = why_memory
        """The reason why the file is not used. Empty while the file is used."""
        self.put_aside: Path | None = None
        self._tables: Final = tuple(tables)
        self._retry_seconds: Final = retry_seconds
        self._connection: sqlite3.Connection
        self._is_file = False
        self._inode = 0
        self._has_all = False
        """Whether memory contains all rows of the file, so that they can replace the rows in the file."""
        self._retry_at = 0.0

    def open(self) -> None:
        self._connection = open_memory(self._tables)
        if self.path is None:
            weakref.finalize(self, self._connection.close)
        self.recover()

    def close(self) -> None:
        self._connection.close()

    @property
    def seconds_to_retry(self) -> float | None:
        """The number of seconds until the file is tried again, or None if no retry is planned."""
        return None if self._is_file or self.path is None else max(0.0, self._retry_at - time.monotonic())

    def recover(self) -> None:
        if self.path is not None and self.seconds_to_retry == 0:
            self._recover(self.path)

    def do(self, jobs: Sequence[Transaction]) -> None:
        if self._is_file and self._has_moved():
            self._fail(OSError("the file was moved or deleted"))
        if self._is_file:
            try:
                self._transact(jobs)
            except sqlite3.Error as error:
                self._fail(error)
        # The fault has rolled back the transaction, so the unfinished jobs run again in memory.
        others: list[Transaction] = []
        for job in (each for each in jobs if not each.future.done()):
            if job.durable and self.problem:
                job.future.set_exception(NotStoredError(self.problem))
            else:
                others.append(job)
        try:
            if others:
                self._transact(others)
        except sqlite3.Error as error:  # Out of memory.
            for job in others:
                if not job.future.done():
                    job.future.set_exception(error)

    def _transact(self, jobs: Sequence[Transaction]) -> None:
        """Commit all jobs together or, if a job fails, one by one. Raise sqlite3.Error if the file or disk fails."""
        try:
            results = self._committed(jobs)
        except Exception as error:  # Boundary: the caller gets the error.
            if is_fault(error):
                raise
            if len(jobs) == 1:
                jobs[0].future.set_exception(error)
                return
            for job in jobs:
                self._transact([job])
        else:
            for job, result in zip(jobs, results, strict=True):
                job.future.set_result(result)

    def _committed(self, jobs: Sequence[Transaction]) -> list[Json]:
        connection = self._connection
        try:
            # A single statement needs no explicit transaction. IMMEDIATE acquires the lock before any work
            # (https://www.sqlite.org/lang_transaction.html).
            if len(jobs) > 1 or not isinstance(jobs[0].work, SqliteStatement):
                connection.execute("BEGIN IMMEDIATE")
            results = [job.work(connection) for job in jobs]
            if connection.in_transaction:
                connection.execute("COMMIT")
        except BaseException:
            # ROLLBACK fails harmlessly if SQLite has rolled back already
            # (https://www.sqlite.org/lang_transaction.html, "Response To Errors Within A Transaction").
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
        return results

    def _fail(self, error: sqlite3.Error | OSError) -> None:
        assert self.path is not None  # noqa: S101 - there was a file
        memory = open_memory(self._tables)
        memory.execute("BEGIN")
        self._has_all = copy_rows(self._connection, memory, replace=True)
        memory.execute("COMMIT")
        self._connection.close()
        self._connection, self._is_file = memory, False
        self._log_problem(error)
        if is_broken(error):
            self._put_aside(self.path)
            self._retry_at = 0.0

    def _recover(self, path: Path) -> None:
        self._retry_at = time.monotonic() + self._retry_seconds
        try:
            file = self._opened(path)
        except (sqlite3.Error, OSError) as error:
            return self._log_problem(error)
        try:
            file.execute("BEGIN IMMEDIATE")
            copy_rows(self._connection, file, replace=self._has_all)
            file.execute("COMMIT")
            # `_has_moved` compares the inode before each write.
            self._inode = path.stat().st_ino
        except (sqlite3.Error, OSError) as error:
            file.close()
            return self._log_problem(error)
        self._connection.close()
        self._connection, self._is_file = file, True
        if self.problem:
            log.info("state is written again", file=str(path))
        self.problem = ""
        return None

    def _opened(self, path: Path) -> sqlite3.Connection:
        try:
            return open_file(path, self._tables)
        except sqlite3.DatabaseError as error:
            if not is_broken(error):
                raise
            self._log_problem(error)
            self._put_aside(path)
            return open_file(path, self._tables)

    def _put_aside(self, path: Path) -> None:
        try:
            self.put_aside = put_aside(path)
        except OSError as error:
            return self._log_problem(error)
        log.error("corrupt state file renamed", file=str(self.put_aside))
        return None

    def _log_problem(self, error: Exception) -> None:
        reason = getattr(error, "sqlite_errorname", type(error).__name__)
        self.faults[reason] = self.faults.get(reason, 0) + 1
        problem = f"{self.path}: {error}"
        if problem != self.problem:
            log.error("state is not written; it is kept in memory", problem=problem, reason=reason)
        self.problem = problem

    def _has_moved(self) -> bool:
        """Return whether the file was moved, replaced or deleted. SQLite would continue to write to the old file."""
        try:
            return self.path is None or self.path.stat().st_ino != self._inode
        except OSError:
            return True
