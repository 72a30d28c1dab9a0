"""Limits concurrent calls per caller, per primitive, and in total, within one event loop.

With several replicas, the limits per caller and in total apply to all replicas together. The limits per primitive apply
to each replica.

All calls acquire the limits in the same order, so deadlocks are impossible. The caller's limit is first, so that calls
that wait for it do not block other callers. The total is last, so that calls that wait for a primitive do not use it.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from gateway.errors import OverLimitError
from gateway.limits.fair_semaphore import FairSemaphore, Limit, Semaphores
from gateway.state.redis_limits import RedisSemaphores


class ConcurrencyLimiter:
    """Holds the semaphores of all limits. Semaphores outlive reloads, so a reload does not double the running calls."""

    def __init__(self, *, shared: RedisSemaphores | None = None) -> None:
        self._callers: Final = Semaphores("calls", store=shared)
        self._primitives: Final = Semaphores()
        self._all: Final = Semaphores("all calls", store=shared)
        self._shared: Final = shared
        self.refused = 0
        """The number of calls that a full queue has refused, or that later calls have displaced from a queue."""

    @property
    def is_shared(self) -> bool:
        return self._shared is not None and not self._shared.is_unavailable

    def try_acquire(self, primitive: str, limit: Limit) -> "ConcurrencyPermit | None":
        """Return a permit that only counts against the limit of `primitive`, or None if no slot is free."""
        semaphore = self._primitives[primitive]
        return ConcurrencyPermit((semaphore,)) if semaphore.try_acquire(limit) else None

    async def acquire(  # noqa: PLR0913 - three limits, the caller and the deadline
        self,
        primitive: str,
        limit: Limit,
        *,
        caller: str,
        deadline: float,
        of_caller: Limit | None = None,
        of_all: Limit | None = None,
    ) -> "ConcurrencyPermit":
        """Wait for the permit of a call until `deadline`, a time on the event loop's clock.

        Raises:
            OverLimitError: A queue is full.
            ExecutionError: The deadline has passed.
        """
        taken: list[FairSemaphore] = []
        try:
            for semaphores, key, each, name in (
                (self._callers, caller, of_caller, "limits.concurrency, per_caller"),
                (self._primitives, primitive, limit, "concurrency"),
                (self._all, "", of_all, "limits.concurrency, in_all"),
            ):
                if each is None:
                    continue
                semaphore = semaphores[key]
                await semaphore.acquire(each, caller=caller, deadline=deadline, name=name)
                taken.append(semaphore)
        except BaseException as error:
            # Release the acquired semaphores here, because no `ConcurrencyPermit` holds them yet.
            _release(taken)
            self.refused += isinstance(error, OverLimitError)
            raise
        return ConcurrencyPermit(tuple(taken))

    @property
    def running(self) -> int:
        """The number of running calls, including nested calls."""
        # Calls that wait for the total limit already count as running for their primitive.
        return sum(each.running for each in self._primitives.values()) - _waiting(self._all)

    def uses(self, *, by_caller: bool) -> Iterator[tuple[str, int, int]]:
        """Yield name, running plus waiting calls, and maximum running calls, for each caller or primitive.

        A primitive's name is a string such as `tools/call/deploy`.
        """
        for name, each in (self._callers if by_caller else self._primitives).items():
            if used := each.running + each.waiting:
                yield name, used, each.capacity

    @property
    def waiting(self) -> int:
        return sum(map(_waiting, (self._callers, self._primitives, self._all)))


class ConcurrencyPermit:
    """The permit of a call, which holds one slot in each of several semaphores."""

    __slots__ = ("_holders", "_is_suspended", "_semaphores")

    def __init__(self, semaphores: tuple[FairSemaphore, ...]) -> None:
        self._semaphores: Final = semaphores
        self._holders = 1
        self._is_suspended = False

    def hold_until_done(self, task: asyncio.Task[None]) -> None:
        """Keep the permit until `task` is done, even if the response is sent earlier."""
        self._holders += 1
        task.add_done_callback(lambda _: self.release())

    def suspend(self) -> None:
        """Free the permit until `resume` or `force_resume`, for example while the client is asked for input."""
        if self._holders and not self._is_suspended:
            self._is_suspended = True
            for semaphore in self._semaphores:
                semaphore.suspend()

    async def resume(self) -> None:
        """Wait for the suspended permit, ahead of new calls. If the wait is cancelled, take the permit anyway."""
        taken = 0
        try:
            for semaphore in self._semaphores if self._is_suspended else ():
                await semaphore.reacquire()
                taken += 1
        finally:
            # Hold the permit even if the wait is cancelled, because the call releases it.
            if self._is_suspended:
                self._note_resumed(over_limit=self._semaphores[taken:])
            else:  # The permit was resumed or released during the wait.
                _release(self._semaphores[:taken])

    def force_resume(self) -> None:
        """Take the suspended permit of a cancelled call again at once, even over the limit.

        Otherwise, the remaining work of the cancelled call, such as a thread, would not count against the limit.
        """
        if self._is_suspended:
            self._note_resumed(over_limit=self._semaphores)

    def release(self) -> None:
        """Release the permit for one holder. The release by the last holder frees the slots."""
        self._holders -= 1
        if self._holders == 0:
            for semaphore in self._semaphores:
                if self._is_suspended:
                    semaphore.forget_suspended()
                else:
                    semaphore.release()
            self._is_suspended = False

    def _note_resumed(self, *, over_limit: Sequence[FairSemaphore]) -> None:
        """Count the call as running again. The semaphores in `over_limit` may then exceed their limit."""
        self._is_suspended = False
        for semaphore in self._semaphores:
            semaphore.note_resumed(over_limit=semaphore in over_limit)


def _release(semaphores: Sequence[FairSemaphore]) -> None:
    for semaphore in semaphores:
        semaphore.release()


def _waiting(semaphores: Semaphores) -> int:
    return sum(each.waiting for each in semaphores.values())
