"""The database of what survives: `state.sqlite`, or memory while no file can be written.

Every function that `run` is given is a transaction of its own, on a thread of the database's. Those that are asked for
in one turn of the event loop, or wait while others are written, are committed together: one flush of the disk serves
them all, and the two threads take turns less often. While no file can be written, `FallbackConnection` writes to
memory.
"""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Final, Self, TypeVar

import structlog

from gateway.json_types import Json
from gateway.state.fallback_connection import FallbackConnection, Transaction, Work
from gateway.state.sqlite_file import Schema

log: Final = structlog.get_logger()

T = TypeVar("T")

RETRY_SECONDS: Final = 5.0
"""Pause between attempts to write a file that could not be written."""
_TOGETHER: Final = 200
"""Transactions that are committed together."""
_CLOSE_SECONDS: Final = 10.0


class StateDatabase:
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
        self.connection: Final = FallbackConnection(path, schemas, why_memory=why_memory, retry_seconds=retry_seconds)
        """Used by the thread alone, but for what it says of itself."""
        self._asked: list[Transaction] = []
        """The jobs of this turn of the event loop."""
        self._queue: Final[SimpleQueue[Transaction | None]] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop
        self._closed: Final = asyncio.Event()
        self._thread: threading.Thread | None = None

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
        # First of all: `_put` refuses what is asked for from now on, which nobody would do after the end of the queue.
        thread, self._thread = self._thread, None
        # The call of this turn that `_put` has asked for may not have come yet.
        self._hand_over()
        self._queue.put(None)
        if thread is not None:
            with suppress(TimeoutError):
                # Not join(): it would block the event loop, in which answers are given. A disk that hangs must not keep
                # the daemon from ending, either: the thread is a daemon thread.
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._closed.wait()

    @property
    def is_durable(self) -> bool:
        """Whether what is written now is in the file when `run` returns."""
        return self.connection.path is not None and not self.connection.problem

    async def run(self, work: Work[T], *, durable: bool = False) -> T:
        """Do a transaction.

        Raises:
            NotDurableError: `durable` is asked for, and the file cannot be written; nothing was done.
        """
        answer: asyncio.Future[T] = self._loop.create_future()
        self._put(Transaction(work, durable=durable, answer=answer))
        return await answer

    def post(self, work: Work[object]) -> None:
        """Do a transaction after those that were asked for before it. Its errors are logged."""
        self._put(Transaction(work))

    def status(self) -> dict[str, Json]:
        return {
            "file": None if self.connection.path is None else str(self.connection.path),
            "durable": self.is_durable,
            "problem": self.connection.problem or None,
            "put_aside": None if self.connection.put_aside is None else str(self.connection.put_aside),
        }

    def _put(self, job: Transaction) -> None:
        if self._thread is None:
            raise RuntimeError("the database is closed")
        # All that is asked for in this turn goes over at once, and is committed together.
        if not self._asked:
            self._loop.call_soon(self._hand_over)
        self._asked.append(job)

    def _hand_over(self) -> None:
        asked, self._asked = self._asked, []
        for job in asked:
            self._queue.put(job)

    def _serve(self, opened: asyncio.Future[None]) -> None:
        """Run the thread."""
        self.connection.open()
        self._tell([Transaction(lambda _: None, answer=opened)])
        while (jobs := self._next()) is not None:
            if jobs:
                self.connection.do(jobs)
                self._tell(jobs)
            self.connection.recover()
        self.connection.close()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._closed.set)

    def _next(self) -> list[Transaction] | None:
        """Wait for jobs; empty when the file is to be tried again, None at the end."""
        wait = self.connection.seconds_to_retry
        jobs: list[Transaction] = []
        try:
            job = self._queue.get(timeout=wait)
            while job is not None:
                jobs.append(job)
                # Bounded: while jobs keep coming in, those who asked first must be answered some time.
                if len(jobs) == _TOGETHER:
                    return jobs
                job = self._queue.get_nowait()
        except Empty:
            return jobs
        if jobs:
            # The end is put back: the jobs before it are done first.
            self._queue.put(None)
            return jobs
        return None

    def _tell(self, jobs: list[Transaction]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            # Futures are not thread-safe (asyncio-dev, "Concurrency and Multithreading"): the loop resolves them.
            self._loop.call_soon_threadsafe(_resolve, jobs)


def _resolve(jobs: Sequence[Transaction]) -> None:
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
