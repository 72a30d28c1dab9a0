"""The loop that notices a change, and says when to reload. The reload itself is `ReloadPipeline`'s.

A file that cannot be served changes nothing for any client, and its problems stay in `status` until it is right.

Why a snapshot of all watched files comes before each load: what changes while the files are read differs in the next
snapshot, and what was there before does not, so that each change is loaded once and none is missed.
"""

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, Generic, Protocol, TypeVar

import msgspec
import structlog

from gateway.background_tasks import BackgroundTasks
from gateway.errors import ConfigError, Problem
from gateway.events import Events
from gateway.reload.watch_plan import Snapshot, WatchPlan
from gateway.reload.watcher import Watcher

log: Final = structlog.get_logger(__name__)

C = TypeVar("C")

_FIRST_RETRY_SECONDS: Final = 1.0
"""The time until what could not be watched is tried again; doubled with each attempt."""
_MAX_RETRY_SECONDS: Final = 30.0

_SETTLE_SECONDS: Final = 0.1
"""The time between two looks at a change that no burst of events announced."""
_MAX_LOOKS: Final = 16
"""The number of looks after which files that never rest are loaded as they are."""

_OUR_BUG: Final = Problem(message="the files could not be loaded because of an error in the gateway; see its log")


class ReloadStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The last attempt at loading what is on disk."""

    at: datetime
    problems: tuple[Problem, ...] = ()
    """The errors that keep the files from being served; empty when what is served is what is on disk."""

    @property
    def is_good(self) -> bool:
        return not self.problems


class Trigger(StrEnum):
    """The reason for a reload."""

    START = "start"
    FILE = "file"
    SIGNAL = "signal"
    REQUEST = "request"
    SOURCE = "source"
    """A source of definitions beside the files had something new."""


class ReloadAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at loading what is on disk, served or not."""

    status: ReloadStatus
    trigger: Trigger
    seconds: float


class Pipeline(Protocol[C]):
    """The steps of a reload (`ReloadPipeline`)."""

    @property
    def watch_plan(self) -> WatchPlan:
        """The plan to watch by; asked again after each reload."""

    @property
    def source_changed(self) -> asyncio.Event:
        """Set when a source of definitions beside the files has something new to offer."""

    async def load_and_compile(self) -> C:
        """Prepare what is on disk, and touch nothing that is served.

        Raises:
            ConfigError: it cannot be served.
        """

    def swap(self, candidate: C) -> None:
        """Serve it. Cannot fail."""

    def announce(self) -> None:
        """Tell clients what is served now. Cannot fail."""


class Reloader(Generic[C]):
    """Decides when to reload: on change and on request, one reload at a time."""

    def __init__(self, pipeline: Pipeline[C], *, poll: timedelta, loaded_at: int, events: Events | None = None) -> None:
        """Do nothing yet.

        Args:
            pipeline: carries reloads out.
            poll: how often to look where no event comes; zero is never.
            loaded_at: when what is served now began to be read, in ns since the epoch.
            events: told of each attempt (`ReloadAttempt`); None: nobody is.
        """
        self._events: Final = events or Events()
        self._pipeline: Final = pipeline
        self._poll: Final = poll
        self._one_at_a_time: Final = asyncio.Lock()
        self._requested: Final = BackgroundTasks()
        self._waiting: asyncio.Task[ReloadStatus] | None = None
        """The requested reload that has not begun."""
        self._loaded = Snapshot(taken_at=loaded_at)
        """The files just before they were last read."""
        self._watcher: Watcher | None = None
        self._is_armed = False
        """Whether the newest plan is the one that is watched."""
        self.status = ReloadStatus(at=datetime.now(UTC))
        self.last_good: datetime = self.status.at
        """The time of the last load that was served."""
        self.succeeded = 0
        self.refused = 0
        self.watch_error: str | None = None
        self.is_watching = False
        """Whether there was a first look: whatever changes from now on is noticed."""

    async def run(self) -> None:
        """Watch until cancelled. Where events are not to be had, try again, less and less often."""
        clock = asyncio.get_running_loop().time
        retry_seconds = _FIRST_RETRY_SECONDS
        while True:
            self._is_armed = True
            is_overdue = False
            retry_at = clock() + retry_seconds  # however many hints come until then
            async with Watcher(self._pipeline.watch_plan, poll=self._poll) as self._watcher:
                self._note_watch_error(self._watcher.error)
                await self._look(is_settled=False)
                self.is_watching = True
                while self._is_armed:
                    is_settled = False
                    try:
                        async with asyncio.timeout_at(None if self._watcher.error is None else retry_at):
                            is_settled = await self._watcher.hint()
                    except TimeoutError:
                        self._is_armed, is_overdue = False, True
                    self._note_watch_error(self._watcher.error)
                    await self._look(is_settled=is_settled)
                failed = self._watcher.error is not None
            if not failed:
                retry_seconds = _FIRST_RETRY_SECONDS
            elif is_overdue:  # not after a reload, which arms new watches whatever became of the old ones
                retry_seconds = min(2 * retry_seconds, _MAX_RETRY_SECONDS)

    async def run_for_sources(self) -> None:
        """Reload when a source of definitions has something new, until cancelled; also where files are not watched."""
        while True:
            await self._pipeline.source_changed.wait()
            await asyncio.sleep(_SETTLE_SECONDS)  # several may have something new at once
            self._pipeline.source_changed.clear()
            await self.reload(trigger=Trigger.SOURCE)

    async def reload(self, *, trigger: Trigger = Trigger.REQUEST) -> ReloadStatus:
        """Load what is on disk now, and serve it if it is right. A reload that has begun ends, whoever goes away.

        Requests share a reload that has not begun yet; one that has may have read the files before they were written.
        """
        if self._waiting is None:
            self._waiting = self._requested.begin(self._reload_now(trigger), name="reload on request")
        return await asyncio.shield(self._waiting)

    async def close(self) -> None:
        """End the reloads that were requested."""
        await self._requested.cancel()

    async def _reload_now(self, trigger: Trigger) -> ReloadStatus:
        async with self._one_at_a_time:
            self._waiting = None
            await self._reload(await asyncio.to_thread(self._pipeline.watch_plan.snapshot), trigger=trigger)
            return self.status

    def _note_watch_error(self, error: str | None) -> None:
        if error is not None and self.watch_error is None:  # those of further attempts are no news
            log.warning("file events failed", error=error)
        self.watch_error = error

    async def _look(self, *, is_settled: bool) -> None:
        """Reload if something is not as it was, and no longer changes.

        A look that follows a burst of events finds the files at rest. Any other may fall into the middle of a save, and
        would load it twice: half written, or whole but with a snapshot of the half.
        """
        earlier: Snapshot | None = None
        for look in range(_MAX_LOOKS):
            async with self._one_at_a_time:
                try:
                    seen, differs = await asyncio.to_thread(_compare, self._pipeline.watch_plan, self._loaded)
                except Exception:  # Boundary: a bug of ours costs this look, and must not end the watch.
                    log.exception("looking at the files failed")
                    return
                if not differs:
                    self._loaded = seen
                    return
                rests = is_settled or (earlier is not None and seen.states == earlier.states)
                if rests or look == _MAX_LOOKS - 1:
                    await self._reload(seen, trigger=Trigger.FILE)
                    return
            earlier = seen
            await asyncio.sleep(_SETTLE_SECONDS)  # without the lock: a requested reload does not wait for it

    async def _reload(self, seen: Snapshot, *, trigger: Trigger) -> None:
        # Also if it fails: files that cannot be served are loaded again once they have changed, and not at each look.
        self._loaded, began = seen, time.monotonic()
        try:
            candidate = await self._pipeline.load_and_compile()
        except ConfigError as error:
            self._refuse(error.errors)
        except Exception:  # Boundary: a file that brings out a bug of ours must not end the watch; the old stays.
            log.exception("reload failed")
            self._refuse([_OUR_BUG])
        else:
            self._pipeline.swap(candidate)
            # Nothing awaits from here on, so that no client sees the new catalog with the status of the old one.
            self.status = ReloadStatus(at=datetime.now(UTC))
            self.last_good = self.status.at
            self.succeeded += 1
            self._pipeline.announce()
        self._events.publish(ReloadAttempt(status=self.status, trigger=trigger, seconds=time.monotonic() - began))
        self._is_armed = False
        if self._watcher is not None:
            self._watcher.wake()

    def _refuse(self, problems: Sequence[Problem]) -> None:
        if tuple(problems) != self.status.problems:  # the same problems are no news
            for problem in problems:
                log.error("reload refused", problem=str(problem))
        self.status = ReloadStatus(at=datetime.now(UTC), problems=tuple(problems))
        self.refused += 1


def _compare(plan: WatchPlan, loaded: Snapshot) -> tuple[Snapshot, bool]:
    """Look, and say whether something changed since it was loaded. Blocking."""
    seen = plan.snapshot()
    return seen, seen.differs_from(loaded)
