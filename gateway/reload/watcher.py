"""Watches directories and reports possible changes, from file events and a slow poll.

`RustNotify` is used directly, because `awatch` imports anyio, which slows down the start.
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
"""Milliseconds without events that end a burst. Editors and `git checkout` write many files at once."""
_MAX_BURST_MS: Final = 1600
_NO_TIMEOUT: Final = 0


class Watcher:
    """Watches the directories of a plan while open, and reports when files have possibly changed."""

    def __init__(self, plan: WatchPlan, *, poll: timedelta) -> None:
        self._plan: Final = plan
        self._poll: Final = poll.total_seconds() or None
        self._hinted: Final = asyncio.Event()
        self._closed: Final = threading.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.error: str | None = None

    async def __aenter__(self) -> Self:
        for paths, recursive in ((self._plan.flat, False), (self._plan.roots, True)):
            readable = [path for path in sorted(filter(is_directory, paths)) if self._can_read(path)]
            if readable:
                watching = self._watch(readable, recursive=recursive)
                self._tasks.append(asyncio.create_task(watching, name="watch files"))
        await asyncio.sleep(0)  # Yield to the event loop, so that each task starts its watch.
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()  # The threads check `_closed` every `_SETTLE_MS`.
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def wake(self) -> None:
        self._hinted.set()

    async def hint(self) -> bool:
        """Wait for a burst of events and return True, or return False after the polling interval."""
        try:
            async with asyncio.timeout(self._poll):
                await self._hinted.wait()
        # inotify(7) does not report remote changes of network filesystems.
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
        except Exception as error:  # noqa: BLE001 - Boundary: polling continues without events
            self.error = f"no file events: {error}"
            self.wake()  # `Reloader` reads `error` after each hint.

    def _can_read(self, path: Path) -> bool:
        """Return whether a directory can be watched, which requires read permission (inotify_add_watch(2))."""
        try:
            os.scandir(path).close()
        except OSError as error:
            self.error = f"no file events: {error}"
            return False
        return True
