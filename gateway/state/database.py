"""The database of what survives: `state.sqlite`, or memory while no file can be written.

Every function that `run` is given is a transaction of its own, on a thread of the database's. Those that are asked for
in one turn of the event loop, or wait while others are written, are committed together: one flush of the disk serves
them all, and the two threads take turns less often.

A full disk, a read-only or broken file, a lock of somebody else's: the rows are copied into memory, and all goes on
there. From time to time the file is tried again, and gets the rows back. A broken one is put aside first.
"""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Final, Self, TypeVar

import msgspec
import structlog

from gateway.json_types import Json
from gateway.state.schema import NewerSchemaError, Schema
from gateway.state.sqlite_file import copy_rows, is_broken, is_fault, open_file, open_memory, put_aside

log: Final = structlog.get_logger()

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
"""Reads and writes rows. It may be called again after a fault, so it does nothing else."""

RETRY_SECONDS: Final = 5.0
"""Pause between attempts to write a file that could not be written."""
_TOGETHER: Final = 200
"""Transactions that are committed together."""
_CLOSE_SECONDS: Final = 10.0


class NotDurableError(Exception):
    """The file cannot be written now; its text is why."""


class Statement(msgspec.Struct, frozen=True):
    """Work that is one statement, which SQLite does whole or not at all; its rows are returned."""

    query: str
    values: tuple[Json, ...] = ()

    def __call__(self, connection: sqlite3.Connection) -> list[tuple[Json, ...]]:
        return connection.execute(self.query, self.values).fetchall()


class _Job(msgspec.Struct, eq=False):
    work: Work[Json]
    durable: bool = False
    answer: asyncio.Future[Json] | None = None
    outcome: tuple[Json, BaseException | None] = (None, None)


class Database:
    """The rows of all stores.

    `await run(work)` does `work(connection)` as a transaction and returns what it returns; errors of its own roll it
    back and are raised. `post(work)` does it soon, and nobody waits.

    `is_durable` says whether what is written now outlives the process. It can change with the next write, so what must
    be on disk before it is acknowledged is run with `durable=True`: that writes to the file, or raises
    `NotDurableError` and writes nothing.
    """

    def __init__(
        self,
        path: Path | None,
        schemas: Sequence[Schema],
        *,
        why_memory: str = "",
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        """Open nothing yet.

        Args:
            path: the file; None: memory alone.
            schemas: the tables of all stores.
            why_memory: the reason for which there is no file.
            retry_seconds: pause between attempts to write a file that could not be written.
        """
        self.path: Final = path
        self.faults: Final[dict[str, int]] = {}
        """How often the file could not be written, by SQLite's name of the reason."""
        self.problem = why_memory
        """Why nothing is written to the file now; empty while all is."""
        self.put_aside: Path | None = None
        """Where the broken file lies, if there was one."""
        self._schemas: Final = tuple(schemas)
        self._retry_seconds: Final = retry_seconds
        self._asked: list[_Job] = []
        """The jobs of this turn of the event loop."""
        self._queue: Final[SimpleQueue[_Job | None]] = SimpleQueue()
        self._on_loss: Final[list[Callable[[], None]]] = []
        self._loop: asyncio.AbstractEventLoop
        self._closed: Final = asyncio.Event()
        self._thread: threading.Thread | None = None
        # What follows belongs to the thread.
        self._connection: sqlite3.Connection
        self._is_file = False
        self._inode = 0
        self._has_all = False
        """Whether memory has all that the file had, so that it may replace the file's rows."""
        self._retry_at = 0.0

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        opened: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._serve, args=(opened,), name="state database", daemon=True)
        self._thread.start()
        await opened
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write what was posted, and close the file."""
        thread, self._thread = self._thread, None
        self._hand_over()
        self._queue.put(None)
        if thread is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._closed.wait()

    @property
    def is_durable(self) -> bool:
        """Whether what is written now is in the file when `run` returns."""
        return self.path is not None and not self.problem

    async def run(self, work: Work[T], *, durable: bool = False) -> T:
        """Do a transaction.

        Raises:
            NotDurableError: `durable` is asked for, and the file cannot be written; nothing was done.
        """
        answer: asyncio.Future[T] = self._loop.create_future()
        self._put(_Job(work, durable=durable, answer=answer))
        return await answer

    def post(self, work: Work[object]) -> None:
        """Do a transaction after those that were asked for before it. Its errors are logged."""
        self._put(_Job(work))

    def on_loss(self, callback: Callable[[], None]) -> None:
        """Have a function called when rows were lost with a broken file, so that a store can write what it holds."""
        self._on_loss.append(callback)

    def status(self) -> dict[str, Json]:
        return {
            "file": None if self.path is None else str(self.path),
            "durable": self.is_durable,
            "problem": self.problem or None,
            "put_aside": None if self.put_aside is None else str(self.put_aside),
        }

    def _put(self, job: _Job) -> None:
        if self._thread is None:
            raise RuntimeError("the database is closed")
        if not self._asked:
            self._loop.call_soon(self._hand_over)
        self._asked.append(job)

    def _hand_over(self) -> None:
        asked, self._asked = self._asked, []
        for job in asked:
            self._queue.put(job)

    def _serve(self, opened: asyncio.Future[None]) -> None:
        """Run the thread."""
        self._open()
        self._tell([_Job(lambda _: None, answer=opened)])
        while (jobs := self._next()) is not None:
            if jobs:
                self._do(jobs)
            if not self._is_file and self.path is not None and time.monotonic() >= self._retry_at:
                self._recover(self.path)
        self._connection.close()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._closed.set)

    def _open(self) -> None:
        self._connection = open_memory(self._schemas)
        if self.path is not None:
            self._has_all = False
            self._recover(self.path)

    def _next(self) -> list[_Job] | None:
        """Wait for jobs; empty when the file is to be tried again, None at the end."""
        wait = None
        if not self._is_file and self.path is not None:
            wait = max(0.0, self._retry_at - time.monotonic())
        jobs: list[_Job] = []
        try:
            job = self._queue.get(timeout=wait)
            while job is not None:
                jobs.append(job)
                if len(jobs) == _TOGETHER:
                    return jobs
                job = self._queue.get_nowait()
        except Empty:
            return jobs
        if jobs:
            self._queue.put(None)
            return jobs
        return None

    def _do(self, jobs: list[_Job]) -> None:
        """Do jobs in the file; after a fault, or without a file, in memory."""
        if self._is_file and self._has_moved():
            self._fail(OSError("the file was moved or deleted"))
        if self._is_file:
            try:
                self._transact(jobs)
            except sqlite3.Error as error:
                self._fail(error)
            else:
                return self._tell(jobs)
        for job in jobs:
            job.outcome = (None, NotDurableError(self.problem or "no state directory")) if job.durable else (None, None)
        others = [job for job in jobs if not job.durable]
        try:
            if others:
                self._transact(others)
        except sqlite3.Error as error:  # out of memory
            for job in others:
                job.outcome = (None, error)
        return self._tell(jobs)

    def _transact(self, jobs: list[_Job]) -> None:
        """Do jobs and commit them together, each of which is undone alone if it fails.

        Raises:
            sqlite3.Error: a fault of the file, after which none of them is done.
        """
        connection = self._connection
        try:
            if len(jobs) > 1 or not isinstance(jobs[0].work, Statement):
                connection.execute("BEGIN IMMEDIATE")
            for job in jobs:
                self._attempt(job, is_alone=len(jobs) == 1)
            if connection.in_transaction:
                connection.execute("COMMIT")
        except sqlite3.Error:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise

    def _attempt(self, job: _Job, *, is_alone: bool) -> None:
        """Do a job within the open transaction, and undo it if it fails.

        Raises:
            sqlite3.Error: a fault of the file.
        """
        connection = self._connection
        has_savepoint = not (is_alone or isinstance(job.work, Statement))
        if has_savepoint:
            connection.execute("SAVEPOINT job")
        try:
            job.outcome = (job.work(connection), None)
        except Exception as error:  # Boundary: whoever asked for the work is told
            if is_fault(error):
                raise
            job.outcome = (None, error)
            if has_savepoint:
                connection.execute("ROLLBACK TO job")
            elif is_alone and connection.in_transaction:
                connection.execute("ROLLBACK")
        if has_savepoint:
            connection.execute("RELEASE job")

    def _tell(self, jobs: list[_Job]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(_resolve, jobs)

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
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._tell_loss)
        return None

    def _tell_loss(self) -> None:
        for callback in self._on_loss:
            callback()

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


def _resolve(jobs: Sequence[_Job]) -> None:
    for job in jobs:
        value, error = job.outcome
        if job.answer is None:
            if error is not None:
                log.error("state not written", exc_info=error)
        elif job.answer.done():
            pass  # whoever asked has been cancelled
        elif error is not None:
            job.answer.set_exception(error)
        else:
            job.answer.set_result(value)
