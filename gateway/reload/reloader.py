"""Detects changes and triggers reloads, which `ReloadPipeline` executes.

If the files cannot be served, nothing changes for clients. The status lists the problems until the files are valid.

A snapshot of all watched files is taken before each load. If a later snapshot differs, the files are loaded again, so
changes during a load are not missed.
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

import msgspec
import structlog

from gateway.background_tasks import BackgroundTasks
from gateway.errors import ConfigError, Problem
from gateway.events import Events
from gateway.reload.candidate import Candidate
from gateway.reload.pipeline import ReloadPipeline
from gateway.reload.watch_plan import Snapshot, WatchPlan
from gateway.reload.watcher import Watcher

log: Final = structlog.get_logger(__name__)

_RETRY_SECONDS: Final = 10.0
"""Seconds before failed watches are retried. Until then, the other watches remain open."""

_SETTLE_SECONDS: Final = 0.1
"""Seconds between two snapshots, if no burst of events announced the change."""
_MAX_LOOKS: Final = 16
"""Number of snapshots after which the files are loaded even if they still change."""

_OUR_BUG: Final = Problem(message="the files were not loaded because of a bug in the gateway. See the gateway's log")


Trigger = Literal["start", "file", "signal", "request", "source"]


class ReloadStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the last load."""

    at: datetime
    problems: tuple[Problem, ...] = ()
    """The errors that prevent the files from being served."""
    trigger: Trigger = "start"
    seconds: float = 0.0
    """The time from the start of the load until the files were served or refused."""

    @property
    def is_good(self) -> bool:
        return not self.problems


class Reloader:
    """Reloads the configuration after changes and on request, one reload at a time."""

    def __init__(
        self, pipeline: ReloadPipeline, *, poll: timedelta, loaded_at: int, events: Events | None = None
    ) -> None:
        """Create the reloader, which publishes the `ReloadStatus` of each load.

        A `poll` of zero disables polling. `loaded_at` is the start of the last load in ns since the epoch.
        """
        self._events: Final = events or Events()
        self._pipeline: Final = pipeline
        self._poll: Final = poll
        self._one_at_a_time: Final = asyncio.Lock()
        self._requested: Final = BackgroundTasks()
        self._waiting: asyncio.Task[ReloadStatus] | None = None
        self._loaded = Snapshot(taken_at=loaded_at)
        self._watcher: Watcher | None = None
        self._is_armed = False
        self.status = ReloadStatus(at=datetime.now(UTC))
        self.last_good: datetime = self.status.at
        self.succeeded = 0
        self.refused = 0
        self.watch_error: str | None = None
        self.is_watching = False

    async def run(self) -> None:
        """Reload when files change, until cancelled. If a watch fails, retry it and compare the files periodically."""
        while True:
            self._is_armed = True
            retry_at = asyncio.get_running_loop().time() + _RETRY_SECONDS
            async with Watcher(self._pipeline.watch_plan, poll=self._poll) as self._watcher:
                self._note_watch_error(self._watcher.error)
                await self._look(is_settled=False)
                self.is_watching = True
                while self._is_armed:
                    try:
                        async with asyncio.timeout_at(None if self._watcher.error is None else retry_at):
                            is_settled = await self._watcher.hint()
                    except TimeoutError:
                        break
                    self._note_watch_error(self._watcher.error)
                    await self._look(is_settled=is_settled)

    async def run_for_sources(self) -> None:
        """Reload when a definition source reports a change, until cancelled. This works without file watching too."""
        while True:
            await self._pipeline.source_changed.wait()
            await asyncio.sleep(_SETTLE_SECONDS)  # Several sources can change at once.
            self._pipeline.source_changed.clear()
            await self.reload(trigger="source")

    async def reload(self, *, trigger: Trigger = "request") -> ReloadStatus:
        """Load the files and serve them if they are valid. A started reload completes even if the caller is cancelled.

        Concurrent requests share a reload that has not started. A started reload is not shared, because it could have
        missed the latest edit.
        """
        if self._waiting is None:
            self._waiting = self._requested.begin(self._reload_now(trigger), name="reload on request")
        return await asyncio.shield(self._waiting)

    async def close(self) -> None:
        await self._requested.cancel()

    async def _reload_now(self, trigger: Trigger) -> ReloadStatus:
        async with self._one_at_a_time:
            self._waiting = None
            await self._reload(await asyncio.to_thread(self._pipeline.watch_plan.snapshot), trigger=trigger)
            return self.status

    def _note_watch_error(self, error: str | None) -> None:
        if error is not None and self.watch_error is None:  # Log only the first failure.
            log.warning("file events failed", error=error)
        self.watch_error = error

    async def _look(self, *, is_settled: bool) -> None:
        """Reload if files have changed, once two consecutive snapshots are equal.

        A file that is still being written is therefore not loaded. With `is_settled`, one snapshot is enough.
        """
        earlier: Snapshot | None = None
        for look in range(_MAX_LOOKS):
            async with self._one_at_a_time:
                try:
                    seen, differs = await asyncio.to_thread(_compare, self._pipeline.watch_plan, self._loaded)
                except Exception:  # Boundary: a bug must not end the watch.
                    log.exception("file comparison failed")
                    return
                if not differs:
                    self._loaded = seen
                    return
                rests = is_settled or (earlier is not None and seen.states == earlier.states)
                if rests or look == _MAX_LOOKS - 1:
                    await self._reload(seen, trigger="file")
                    return
            earlier = seen
            await asyncio.sleep(_SETTLE_SECONDS)  # Sleep without the lock, so that requested reloads do not wait.

    async def _reload(self, seen: Snapshot, *, trigger: Trigger) -> None:
        # Remember failed loads too, so that invalid files are only loaded again after a change.
        self._loaded, began = seen, time.monotonic()
        candidate: Candidate | None = None
        problems: tuple[Problem, ...] = ()
        try:
            candidate = await self._pipeline.load_and_compile()
        except ConfigError as error:
            problems = error.errors
        except Exception:  # Boundary: a bug must not end the watch. The old catalog stays.
            log.exception("reload failed")
            problems = (_OUR_BUG,)
        for problem in problems if problems != self.status.problems else ():  # Log only new problems.
            log.error("reload refused", problem=str(problem))
        if candidate is not None:
            self._pipeline.swap(candidate)
        # No await from here on, so that the catalog and the status change together.
        now, seconds = datetime.now(UTC), time.monotonic() - began
        self.status = ReloadStatus(at=now, problems=problems, trigger=trigger, seconds=seconds)
        if candidate is None:
            self.refused += 1
        else:
            self.last_good = now
            self.succeeded += 1
            self._pipeline.announce()
        self._events.publish(self.status)
        self._is_armed = False
        if self._watcher is not None:
            self._watcher.wake()


def _compare(plan: WatchPlan, loaded: Snapshot) -> tuple[Snapshot, bool]:
    seen = plan.snapshot()
    return seen, seen.differs_from(loaded)
