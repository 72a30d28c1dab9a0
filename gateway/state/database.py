"""The state database, which is the file `state.sqlite`, or memory while the file cannot be written.

Each function passed to `run` is a transaction, and is called in the database's thread. Waiting transactions are
committed together, which saves disk flushes.
"""

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, Self, TypeVar

import structlog

from gateway.json_types import Json
from gateway.state.fallback_connection import FallbackConnection, Transaction, Work

log: Final = structlog.get_logger(__name__)

T = TypeVar("T")

RETRY_SECONDS: Final = 5.0
_MAX_PER_COMMIT: Final = 200
_CLOSE_SECONDS: Final = 10.0


class StateDatabase:
    """Runs transactions in a thread. If a transaction fails, `run` rolls back its changes and raises its error.

    Without a file, transactions run at once in the calling thread, also outside the `async with` block.
    """

    def __init__(
        self,
        path: Path | None,
        tables: Sequence[str],
        *,
        why_memory: str = "",
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        """Use the file at `path`, or memory if `path` is None. `why_memory` is the reason for using memory."""
        self.connection: Final = FallbackConnection(path, tables, why_memory=why_memory, retry_seconds=retry_seconds)
        """Only the database thread uses the connection. Other threads can read its public attributes."""
        self._queue: Final[SimpleQueue[Transaction | None]] = SimpleQueue()
        self._closed: Final = asyncio.Event()
        self._is_open = False
        if path is None:
            self.connection.open()

    async def __aenter__(self) -> Self:
        if self.connection.path is None:
            return self
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._serve, args=(loop,), name="state database", daemon=True).start()
        self._is_open = True
        await self.run(lambda _: None)  # wait until the file is open
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.connection.path is None:
            self.connection.close()
            return
        self._is_open = False  # first, so that no job is queued that would never run
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
        future = self._put(work, durable=durable)
        # In memory, the transaction has already run, because there is no thread.
        return future.result() if self.connection.path is None else await asyncio.wrap_future(future)

    def post(self, work: Work[object]) -> None:
        """Run a transaction in the background, after all earlier transactions. Errors are logged."""
        self._put(work).add_done_callback(_log_failure)

    def status(self) -> dict[str, Json]:
        return {
            "file": None if self.connection.path is None else str(self.connection.path),
            "durable": self.is_durable,
            "problem": self.connection.problem or None,
            "put_aside": None if self.connection.put_aside is None else str(self.connection.put_aside),
        }

    def _put(self, work: Work[T], *, durable: bool = False) -> Future[T]:
        future = Future[T]()
        future.set_running_or_notify_cancel()  # a transaction also runs if its caller is cancelled
        job = Transaction(work, future, durable=durable)
        if self.connection.path is None:
            self.connection.do([job])
        elif self._is_open:
            self._queue.put(job)
        else:
            raise RuntimeError("the database is closed")
        return future

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        self.connection.open()
        is_open = True
        while is_open:
            jobs = self._next()
            is_open = None not in jobs
            if transactions := [job for job in jobs if job is not None]:
                self.connection.do(transactions)
            self.connection.recover()
        self.connection.close()
        with suppress(RuntimeError):  # The loop is closed.
            loop.call_soon_threadsafe(self._closed.set)

    def _next(self) -> list[Transaction | None]:
        """Wait for the next transactions. The list is empty if the file must be tried again, and ends with None."""
        jobs: list[Transaction | None] = []
        with suppress(Empty):
            jobs.append(self._queue.get(timeout=self.connection.seconds_to_retry))
            # Limited, so that a constant stream of jobs does not delay the first ones.
            while jobs[-1] is not None and len(jobs) < _MAX_PER_COMMIT:
                jobs.append(self._queue.get_nowait())
        return jobs


def _log_failure(future: Future[object]) -> None:
    if (error := future.exception()) is not None:
        log.error("state not written", exc_info=error)
