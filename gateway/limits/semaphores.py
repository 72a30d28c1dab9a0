"""The semaphores of one limit: one for each caller or primitive, or one for all."""

from typing import Final

from gateway.limits.fair_semaphore import FairSemaphore
from gateway.limits.shared_capacity import SharedCapacity
from gateway.state.redis_semaphores import RedisSemaphores

_MAX_UNUSED: Final = 1024
"""Semaphores that are kept for their next call. Their keys may be callers' addresses, of which there are many."""


class Semaphores(dict[str, FairSemaphore]):
    """The semaphores of a limit by whom they count; made when one is asked for, and forgotten when unused and many."""

    def __init__(self, name: str = "", *, store: RedisSemaphores | None = None) -> None:
        """Make none yet. With a `store`, all replicas count together; `name` is that of the limit there."""
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
