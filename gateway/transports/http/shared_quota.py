"""Counts streams over all replicas: each has of them what the store gives it, and gives back what it does not use."""

import asyncio
from typing import Final

from gateway.access.call_limits.fair_semaphore import MAX_UNUSED, FairSemaphore
from gateway.access.call_limits.shared_capacity import SharedCapacity
from gateway.errors import ExecutionError
from gateway.state.redis_places import RedisPlaces

_ANSWER_SECONDS: Final = 5.0
_ALL: Final = ""


class SharedQuota:
    """The part of this replica in what all replicas have in use, by caller and in all."""

    def __init__(self, places: RedisPlaces, *, noun: str) -> None:
        self._places: Final = places
        self._noun: Final = noun
        self._used: Final[dict[str, FairSemaphore]] = {}
        places.on_loss(self._reclaim)

    async def acquire(self, caller: str, *, per_caller: int, in_all: int) -> str | None:
        """Take one for a caller; or return whose limit leaves none, the caller's or, as an empty name, that of all."""
        taken: list[str] = []
        for key, most in {caller: per_caller, _ALL: in_all}.items():
            semaphore = self._used.get(key) or self._make(key)
            deadline = asyncio.get_running_loop().time() + _ANSWER_SECONDS
            try:
                await semaphore.acquire((most, 0), caller=caller, deadline=deadline, name=self._noun)
            except BaseException as error:
                for each in taken:
                    self._used[each].release()
                if isinstance(error, ExecutionError):
                    return key
                raise
            taken.append(key)
        return None

    def release(self, caller: str) -> None:
        for key in {caller, _ALL}:
            self._used[key].release()

    def _make(self, key: str) -> FairSemaphore:
        if len(self._used) >= MAX_UNUSED:
            for unused in [each for each, semaphore in self._used.items() if semaphore.is_unused]:
                del self._used[unused]
        semaphore = self._used[key] = FairSemaphore()
        name = self._noun if key else f"all {self._noun}"
        semaphore.share = SharedCapacity(self._places, semaphore, name=name, caller=key)
        return semaphore

    def _reclaim(self) -> None:
        for semaphore in self._used.values():
            if isinstance(semaphore.share, SharedCapacity):
                semaphore.share.reclaim()
