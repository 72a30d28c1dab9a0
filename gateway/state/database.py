"""The state database, which is the file `state.sqlite`, or memory while the file cannot be written.

Each function passed to `run` is a transaction, and is called in the database's thread. Transactions that were added in
the same iteration of the event loop are committed together, which saves disk flushes.
"""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, Self, TypeVar

import structlog

from gateway.json_types import Json
from gateway.state.fallback_connection import FallbackConnection, Transaction, Work
from gateway.state.sqlite_file import Schema

log: Final = structlog.get_logger(__name__)

T = TypeVar("T")

RETRY_SECONDS: Final = 5.0
_MAX_PER_COMMIT: Final = 200
_CLOSE_SECONDS: Final = 10.0


class StateDatabase:
    """Runs transactions in a thread. If a transaction fails, `run` rolls back its changes and raises its error."""

    def __init__(
        self,
        path: Path | None,
        schemas: Sequence[Schema],
        *,
        why_memory: str = "",
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        """Use the file at `path`, or memory if `path` is None. `why_memory` is the reason for using memory."""
        self.connection: Final = FallbackConnection(path, schemas, why_memory=why_memory, retry_seconds=retry_seconds)
        """Only the database thread uses the connection. Other threads can read its public attributes."""
        self._posted: list[Transaction] = []
        """The transactions that were added in the current turn of the event loop."""
        self._queue: Final[SimpleQueue[Transaction | None]] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop
        self._closed: Final = asyncio.Event()
        self._is_open = False

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        opened: asyncio.Future[None] = self._loop.create_future()
        threading.Thread(target=self._serve, args=(opened,), name="state database", daemon=True).start()
        self._is_open = True
        await opened
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_open = False  # first, so that no job is queued that would never run
        # Hand over the last jobs now, because the call that `_put` scheduled could still be pending.
        self._hand_over()
        self._queue.put(None)
        with suppress(TimeoutError):
            # Do not use join(), which would block the event loop. The daemon thread does not delay the exit if the disk
            # hangs.
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._closed.wait()

    @property
    def is_durable(self) -> bool:
        """Whether `run` only returns after changes are in the file."""
        return self.connection.path is not None and not self.connection.problem

    async def run(self, work: Work[T], *, durable: bool = False) -> T:
        """Run a transaction and return its result. With `durable`, raise NotStoredError if the file fails."""
        answer: asyncio.Future[T] = self._loop.create_future()
        self._put(Transaction(work, durable=durable, answer=answer))
        return await answer

    def post(self, work: Work[object]) -> None:
        """Run a transaction in the background, after all earlier transactions. Errors are logged."""
        self._put(Transaction(work))

    def status(self) -> dict[str, Json]:
        return {
            "file": None if self.connection.path is None else str(self.connection.path),
            "durable": self.is_durable,
            "problem": self.connection.problem or None,
            "put_aside": None if self.connection.put_aside is None else str(self.connection.put_aside),
        }

    def _put(self, job: Transaction) -> None:
        if not self._is_open:
            raise RuntimeError("the database is closed")
        # Jobs of one turn are committed together.
        if not self._posted:
            self._loop.call_soon(self._hand_over)
        self._posted.append(job)

    def _hand_over(self) -> None:
        posted, self._posted = self._posted, []
        for job in posted:
            self._queue.put(job)

    def _serve(self, opened: asyncio.Future[None]) -> None:
        self.connection.open()
        self._resolve_soon([Transaction(lambda _: None, answer=opened)])
        while (jobs := self._next()) is not None:
            if jobs:
                self.connection.do(jobs)
                self._resolve_soon(jobs)
            self.connection.recover()
        self.connection.close()
        with suppress(RuntimeError):  # The loop is closed.
            self._loop.call_soon_threadsafe(self._closed.set)

    def _next(self) -> list[Transaction] | None:
        wait = self.connection.seconds_to_retry
        jobs: list[Transaction] = []
        try:
            job = self._queue.get(timeout=wait)
            while job is not None:
                jobs.append(job)
                # Limited, so that a constant stream of jobs does not delay the first ones.
                if len(jobs) == _MAX_PER_COMMIT:
                    return jobs
                job = self._queue.get_nowait()
        except Empty:
            return jobs
        if jobs:
            # Put the stop marker back, and run these jobs first.
            self._queue.put(None)
            return jobs
        return None

    def _resolve_soon(self, jobs: list[Transaction]) -> None:
        with suppress(RuntimeError):  # The loop is closed.
            # Futures are not thread-safe (asyncio-dev, "Concurrency and Multithreading").
            self._loop.call_soon_threadsafe(_resolve, jobs)


def _resolve(jobs: Sequence[Transaction]) -> None:
    for job in jobs:
        value, error = job.outcome
        if job.answer is None:
            if error is not None:
                log.error("state not written", exc_info=error)
        elif job.answer.done():
            pass  # The caller was cancelled.
        elif error is not None:
            job.answer.set_exception(error)
        else:
            job.answer.set_result(value)
