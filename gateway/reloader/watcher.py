"""Hints that something on disk may have changed: events where the system gives them, a slow poll everywhere."""

import asyncio
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import structlog
import watchfiles

from gateway.config.path_kinds import is_directory
from gateway.reloader.watch_plan import WatchPlan

log: Final = structlog.get_logger(__name__)

_SETTLE_MS: Final = 100
"""Quiet time after which a burst of events counts as over: editors and `git checkout` write many files at once."""
_LONGEST_BURST_MS: Final = 1600


class Watcher:
    """Watches a plan's directories while it is open. Says that a look is worth it, not what has changed."""

    def __init__(self, plan: WatchPlan, *, poll: timedelta) -> None:
        self._plan: Final = plan
        self._poll: Final = poll.total_seconds() or None
        self._hinted: Final = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.error: str | None = None
        """Why events are not to be had, if they are not; the poll goes on."""

    async def __aenter__(self) -> Self:
        for paths, recursive in ((self._plan.flat, False), (self._plan.roots, True)):
            existing = sorted(filter(is_directory, paths))
            if existing:
                watching = self._watch(existing, recursive=recursive)
                self._tasks.append(asyncio.create_task(watching, name="watch files"))
        await asyncio.sleep(0)  # each task has armed its watch before it waits, and the caller looks after that
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def wake(self) -> None:
        """Give a hint, as an event does."""
        self._hinted.set()

    async def hint(self) -> None:
        """Return after the next burst of events, or when the poll's time has come."""
        try:
            async with asyncio.timeout(self._poll):
                await self._hinted.wait()
        except TimeoutError:
            return
        self._hinted.clear()

    async def _watch(self, paths: list[Path], *, recursive: bool) -> None:
        try:
            async for _ in watchfiles.awatch(
                *paths,
                watch_filter=lambda _, path: self._plan.matters(path),
                debounce=_LONGEST_BURST_MS,
                step=_SETTLE_MS,
                recursive=recursive,
                ignore_permission_denied=True,
            ):
                self.wake()
        except Exception as error:  # noqa: BLE001 - Boundary: whatever keeps events from coming, the poll goes on.
            self.error = f"no file events: {error}"
            log.warning("file events failed", error=str(error))
            self.wake()  # what is kept of the error is read after each hint
