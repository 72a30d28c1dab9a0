"""The loop that notices a change and the steps that carry it out: build, then apply. Owns no catalog itself.

Everything that can fail is in `build`, which touches nothing that is served. `apply` cannot fail. So a broken file
changes nothing for anybody, and stays visible in `status` until it is right.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Generic, TypeVar

import structlog

from gateway.errors import ConfigError, Problem
from gateway.reloader.watch_plan import State, WatchPlan
from gateway.reloader.watcher import Watcher

log: Final = structlog.get_logger(__name__)

Built = TypeVar("Built")


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
    ) -> None:
        """Do nothing yet.

        Args:
            build: load and compile what is on disk. Raises ConfigError.
            apply: serve what was built.
            plan: what to watch now; asked again after each reload.
            poll: how often to look where no event comes; zero is never.
        """
        self._build: Final = build
        self._apply: Final = apply
        self._plan: Final = plan
        self._poll: Final = poll
        self._one_at_a_time: Final = asyncio.Lock()
        self._seen: Mapping[str, State] = {}
        self._seen_by: WatchPlan | None = None
        self.status = ReloadStatus(at=datetime.now(UTC))
        self.watch_error: str | None = None
        self.is_watching = False
        """Whether changes are noticed from now on."""

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            plan = self._plan()
            async with Watcher(plan, poll=self._poll) as watcher:
                self.is_watching = True
                while await self._is_unchanged(plan):
                    await watcher.hint()
                    self.watch_error = watcher.error

    async def reload(self) -> ReloadStatus:
        """Load what is on disk now, and serve it if it is right."""
        async with self._one_at_a_time:
            try:
                built = await self._build()
            except ConfigError as error:
                self._report(error)
            else:
                await self._apply(built)
                self.status = ReloadStatus(at=datetime.now(UTC))
            return self.status

    async def _is_unchanged(self, plan: WatchPlan) -> bool:
        """Look, and reload if something is not as it was. False means that the watches are to be armed anew."""
        snapshot = await asyncio.to_thread(plan.snapshot)
        expected = self._seen
        if plan != self._seen_by:  # what only the new plan looks at has been read by the load that made this plan
            expected = {path: self._seen.get(path, state) for path, state in snapshot.items()}
        self._seen, self._seen_by = snapshot, plan
        if snapshot == expected:
            return True
        await self.reload()
        return False

    def _report(self, error: ConfigError) -> None:
        if error.problems != self.status.problems:  # the same mistakes need no second line
            for problem in error.problems:
                log.error("reload refused", problem=str(problem))
        self.status = ReloadStatus(at=datetime.now(UTC), problems=error.problems)
