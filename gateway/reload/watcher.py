"""Watches directories, and hints that something may have changed: by events of the system, and by a slow poll.

Why `RustNotify` and not `awatch`: that imports anyio with its backend, a twentieth of the time to start.
"""

import asyncio
import os
import threading
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from watchfiles._rust_notify import RustNotify

from gateway.config.machine_facts import is_directory
from gateway.reload.watch_plan import WatchPlan

_SETTLE_MS: Final = 100
"""Quiet time after which a burst of events counts as over: editors and `git checkout` write many files at once."""
_MAX_BURST_MS: Final = 1600
_NO_TIMEOUT: Final = 0


class Watcher:
    """Watches a plan's directories while it is open. Tells that something may have changed, not what."""

    def __init__(self, plan: WatchPlan, *, poll: timedelta) -> None:
        self._plan: Final = plan
        self._poll: Final = poll.total_seconds() or None
        self._hinted: Final = asyncio.Event()
        self._closed: Final = threading.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.error: str | None = None
        """The reason why there are no events, if there are none; the poll goes on."""

    async def __aenter__(self) -> Self:
        for paths, recursive in ((self._plan.flat, False), (self._plan.roots, True)):
            readable = [path for path in sorted(filter(is_directory, paths)) if self._can_read(path)]
            if readable:
                watching = self._watch(readable, recursive=recursive)
                self._tasks.append(asyncio.create_task(watching, name="watch files"))
        await asyncio.sleep(0)  # each task has armed its watch before it waits, and the caller looks after that
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()  # each thread looks for it whenever `_SETTLE_MS` has passed
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def wake(self) -> None:
        """Give a hint, as an event does."""
        self._hinted.set()

    async def hint(self) -> bool:
        """Return after the next burst of events, with true, or when the poll's time has come."""
        try:
            async with asyncio.timeout(self._poll):
                await self._hinted.wait()
        # inotify(7) catches no remote events of network filesystems, so the poll looks all the same.
        except TimeoutError:
            return False
        self._hinted.clear()
        return True

    async def _watch(self, paths: list[Path], *, recursive: bool) -> None:
        try:
            notify = RustNotify(
                [str(path) for path in paths],
                debug=False,
                force_polling=False,
                poll_delay_ms=0,
                recursive=recursive,
                ignore_permission_denied=True,
            )
            arguments = (_MAX_BURST_MS, _SETTLE_MS, _NO_TIMEOUT, self._closed)
            while isinstance(changes := await asyncio.to_thread(notify.watch, *arguments), set):
                if any(self._plan.matters(path) for _, path in changes):
                    self.wake()
        except Exception as error:  # noqa: BLE001 - Boundary: whatever keeps events from coming, the poll goes on.
            self.error = f"no file events: {error}"
            self.wake()  # what is kept of the error is read after each hint

    def _can_read(self, path: Path) -> bool:
        """Say whether it can be watched: inotify_add_watch(2) asks for the same, and watchfiles does not tell us."""
        try:
            os.scandir(path).close()
        except OSError as error:
            self.error = f"no file events: {error}"
            return False
        return True
