"""Divides limits of all replicas between the semaphores of their processes.

Each process reports its used and wanted slots to the store, which returns the capacity. A semaphore makes one claim at
a time. While the store is unavailable, each replica uses the whole limit.
"""

import asyncio
from contextlib import suppress
from typing import Final

import structlog

from gateway.errors import StoreUnavailableError
from gateway.limits.fair_semaphore import FairSemaphore, Limit
from gateway.limits.rate_limiter import bounded
from gateway.state.redis_semaphores import RedisSemaphores

log: Final = structlog.get_logger(__name__)

_AGAIN_SECONDS: Final = 0.5
"""The interval at which slots are claimed again without a message from another replica."""


class SharedCapacity:
    """The part of a limit that one semaphore can use."""

    def __init__(self, store: RedisSemaphores, semaphore: FairSemaphore, *, name: str, caller: str) -> None:
        self._store: Final = store
        self._semaphore: Final = semaphore
        self._name: Final = f"{name}:{bounded(caller)}"
        self._limit: Limit = (0, 0)
        self._granted = 0
        self._elsewhere = (0, 0)
        self._is_own = False
        self._changed: Final = asyncio.Event()
        self._claiming: asyncio.Task[None] | None = None

    @property
    def is_claiming(self) -> bool:
        return self._claiming is not None

    @property
    def limit(self) -> int:
        return self._limit[0]

    @property
    def elsewhere(self) -> tuple[int, int]:
        """The last known running and waiting calls of other replicas."""
        return (0, 0) if self._is_own else self._elsewhere

    def of(self, limit: Limit) -> int:
        """Return the number of calls that can run now."""
        self._limit = limit
        return limit[0] if self._is_own else self._granted

    def most_waiting(self, limit: Limit) -> int:
        """Return the number of calls that can wait now."""
        # Including calls whose claim is still open.
        return limit[1] if self._is_own else limit[1] + max(0, limit[0] - self._semaphore.running)

    def freed(self) -> None:
        if self._is_own:
            self._semaphore.resize(self._limit[0])
        else:  # Return the slot first, because another replica could have waited longer.
            self._granted = self._semaphore.running
            self._semaphore.resize(self._granted)
        self.changed()

    def changed(self) -> None:
        if self._is_own and self._store.is_unavailable:
            return
        self._changed.set()
        if self._claiming is None:
            self._claiming = asyncio.get_running_loop().create_task(self._claim_all(), name="limit: claim")
            self._claiming.add_done_callback(self._done)

    def reclaim(self) -> None:
        """Report the used slots again after the store could have lost them."""
        self._is_own = False
        self._granted = self._semaphore.running
        if self._granted or self._semaphore.waiting:
            self.changed()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._claiming = None
        if not task.cancelled() and (bug := task.exception()) is not None:
            log.error("limit is not shared: this replica counts separately", limit=self._name, exc_info=bug)
            self._count_alone()
        # The finished task did not see this change.
        if self._changed.is_set():
            self.changed()

    async def _claim_all(self) -> None:
        while self._changed.is_set() or self._semaphore.waiting:
            if not self._changed.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(_AGAIN_SECONDS):
                        await self._changed.wait()
            self._changed.clear()
            if not await self._claim():
                return

    async def _claim(self) -> bool:
        """Claim once. Return False if the store is unavailable."""
        semaphore = self._semaphore
        used = self._granted = semaphore.running  # No call starts until the reply.
        semaphore.resize(used)
        try:
            claim = await self._store.claim(
                self._name,
                limit=self._limit[0],
                queue=self._limit[1] + semaphore.resuming,
                used=used,
                wanted=semaphore.waiting,
                again=self._changed.set,
            )
        except StoreUnavailableError:
            self._count_alone()
            return False
        # The store counts again.
        self._is_own = False
        self._granted = claim.capacity
        self._elsewhere = (claim.running_elsewhere, claim.waiting_elsewhere)
        semaphore.resize(claim.capacity)
        # After a concurrent change these numbers are outdated, and the next claim decides.
        if not self._changed.is_set():
            semaphore.shorten(max(0, self._limit[1] - claim.waiting_elsewhere))
        return True

    def _count_alone(self) -> None:
        self._is_own = True
        self._changed.clear()
        self._semaphore.resize(self._limit[0])
        self._semaphore.shorten(self._limit[1])


_MAX_UNUSED: Final = 1024
"""The maximum number of unused semaphores. Keys can be client addresses."""


class Semaphores(dict[str, FairSemaphore]):
    """The semaphores of a limit by key. Unused ones are dropped when there are many."""

    def __init__(self, name: str = "", *, store: RedisSemaphores | None = None) -> None:
        """With a `store`, all replicas count together. `name` identifies the limit in the store."""
        super().__init__()
        self._name: Final = name
        self._store: Final = store
        if store is not None:
            store.on_loss(self._reclaim)

    def __missing__(self, key: str) -> FairSemaphore:
        if len(self) >= _MAX_UNUSED:
            for unused in [each for each, old in self.items() if old.is_unused]:
                del self[unused]
        store, name = self._store, self._name

        def share(semaphore: FairSemaphore) -> SharedCapacity:
            assert store is not None  # noqa: S101 - checked below
            return SharedCapacity(store, semaphore, name=name, caller=key)

        semaphore = self[key] = FairSemaphore(None if store is None else share)
        return semaphore

    def _reclaim(self) -> None:
        for semaphore in self.values():
            if semaphore.share is not None:
                semaphore.share.reclaim()
