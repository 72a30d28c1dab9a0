"""The loop that notices a change and the steps that carry it out: build, then apply. Owns no catalog itself.

Everything that can fail is in `build`, which touches nothing that is served. `apply` cannot fail. So a broken file
changes nothing for anybody, and stays visible in `status` until it is right.

Why a look comes before each build: what changes while the files are read looks different at the next look, and what
was there before does not, so that each change is loaded once and none is missed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Generic, TypeVar

import structlog

from gateway.errors import ConfigError, Problem
from gateway.reloader.watch_plan import Snapshot, WatchPlan
from gateway.reloader.watcher import Watcher

log: Final = structlog.get_logger(__name__)

Built = TypeVar("Built")

_OUR_BUG: Final = Problem(message="the files could not be loaded because of an error in the gateway; see its log")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadStatus:
    """The last attempt at loading what is on disk."""

    at: datetime
    problems: tuple[Problem, ...] = ()
    """What keeps the files from being served; empty when what is served is what is on disk."""

    @property
    def is_good(self) -> bool:
        return not self.problems


class Reloader(Generic[Built]):
    """Reloads on change and on request, one at a time."""

    def __init__(
        self,
        *,
        build: Callable[[], Awaitable[Built]],
        apply: Callable[[Built], Awaitable[None]],
        plan: Callable[[], WatchPlan],
        poll: timedelta,
        loaded_at: int,
    ) -> None:
        """Do nothing yet.

        Args:
            build: load and compile what is on disk. Raises ConfigError.
            apply: serve what was built.
            plan: what to watch now; asked again after each reload.
            poll: how often to look where no event comes; zero is never.
            loaded_at: when what is served now began to be read, in ns since the epoch.
        """
        self._build: Final = build
        self._apply: Final = apply
        self._plan: Final = plan
        self._poll: Final = poll
        self._one_at_a_time: Final = asyncio.Lock()
        self._requested: Final[set[asyncio.Task[ReloadStatus]]] = set()
        self._loaded = Snapshot(taken_at=loaded_at)
        """How things looked just before they were last read."""
        self._watcher: Watcher | None = None
        self._is_armed = False
        """Whether the watches stand where the newest plan wants them."""
        self.status = ReloadStatus(at=datetime.now(UTC))
        self.last_good: datetime = self.status.at
        """When files were last loaded with success."""
        self.succeeded = 0
        self.refused = 0
        self.watch_error: str | None = None
        self.is_watching = False
        """Whether changes are noticed from now on."""

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            self._is_armed = True
            async with Watcher(self._plan(), poll=self._poll) as self._watcher:
                self.is_watching = True
                await self._look()
                while self._is_armed:
                    await self._watcher.hint()
                    self.watch_error = self._watcher.error
                    await self._look()

    async def reload(self) -> ReloadStatus:
        """Load what is on disk now, and serve it if it is right. What has begun is finished, whoever goes away."""
        task = asyncio.create_task(self._reload_now(), name="reload on request")
        self._requested.add(task)
        task.add_done_callback(self._requested.discard)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """End the reloads that were requested."""
        for task in self._requested:
            task.cancel()
        await asyncio.gather(*self._requested, return_exceptions=True)

    async def _reload_now(self) -> ReloadStatus:
        async with self._one_at_a_time:
            await self._reload(await asyncio.to_thread(self._plan().snapshot))
            return self.status

    async def _look(self) -> None:
        """Reload if something is not as it was."""
        async with self._one_at_a_time:
            seen = await asyncio.to_thread(self._plan().snapshot)
            if await asyncio.to_thread(seen.differs_from, self._loaded):
                await self._reload(seen)
            else:
                self._loaded = seen

    async def _reload(self, seen: Snapshot) -> None:
        self._loaded = seen
        try:
            built = await self._build()
        except ConfigError as error:
            self._refuse(error.errors)
        except Exception:  # Boundary: a file that brings out a bug of ours must not end the watch; the old stays.
            log.exception("reload failed")
            self._refuse([_OUR_BUG])
        else:
            await self._apply(built)
            self.status = ReloadStatus(at=datetime.now(UTC))
            self.last_good = self.status.at
            self.succeeded += 1
        self._is_armed = False
        if self._watcher is not None:
            self._watcher.wake()

    def _refuse(self, problems: Sequence[Problem]) -> None:
        if tuple(problems) != self.status.problems:  # the same mistakes need no second line
            for problem in problems:
                log.error("reload refused", problem=str(problem))
        self.status = ReloadStatus(at=datetime.now(UTC), problems=tuple(problems))
        self.refused += 1
