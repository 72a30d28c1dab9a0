"""Limits concurrent calls: per caller, per tool, resource or prompt, and in total.

With several replicas, the limits per caller and in total apply to all replicas together. The other limits apply to each
replica.

All calls acquire the limits in the same order, so there are no deadlocks. A call acquires the caller's limit first, so
that waiting calls of one caller do not occupy other limits. A call acquires the total limit last, so that waiting calls
do not occupy it.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from gateway.errors import OverLimitError
from gateway.limits.fair_semaphore import FairSemaphore, Limit, Semaphores
from gateway.state.redis_limits import RedisSemaphores


class ConcurrencyLimiter:
    """Holds the semaphores of all limits, also across configuration reloads, so that running calls still count."""

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
        """Return a permit for the limit of a tool, resource or prompt only, or None if no slot is free."""
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
        """The number of running calls, including calls that other calls have made."""
        # Calls that wait for the total limit already count as running for their primitive.
        return sum(each.running for each in self._primitives.values()) - _waiting(self._all)

    def uses(self, *, by_caller: bool) -> Iterator[tuple[str, int, int]]:
        """Yield the name, the number of running and waiting calls, and the limit of each caller or primitive.

        A primitive is a tool, resource or prompt. Its name is a string such as `tools/call/deploy`.
        """
        for name, each in (self._callers if by_caller else self._primitives).items():
            if used := each.in_use:
                yield name, used, each.capacity

    @property
    def waiting(self) -> int:
        return sum(map(_waiting, (self._callers, self._primitives, self._all)))


class ConcurrencyPermit:
    """The permit of a running call. It holds one slot of each semaphore that limits the call."""

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
        """Free the slots until `resume` or `force_resume`, for example while the client is asked for input."""
        if self._holders and not self._is_suspended:
            self._is_suspended = True
            for semaphore in self._semaphores:
                semaphore.suspend()

    async def resume(self) -> None:
        """Wait for the slots again, ahead of new calls. If the wait is cancelled, take the slots anyway."""
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
        """Take the slots of a suspended call again at once, even if this exceeds the limit.

        This is for cancelled calls. Otherwise, their remaining work, such as a thread, would not count against the
        limit.
        """
        if self._is_suspended:
            self._note_resumed(over_limit=self._semaphores)

    def release(self) -> None:
        """Release the permit for one holder. When the last holder releases the permit, the slots are freed."""
        self._holders -= 1
        if self._holders == 0:
            for semaphore in self._semaphores:
                if self._is_suspended:
                    semaphore.forget_suspended()
                else:
                    semaphore.release()
            self._is_suspended = False

    def _note_resumed(self, *, over_limit: Sequence[FairSemaphore]) -> None:
        self._is_suspended = False
        for semaphore in self._semaphores:
            semaphore.note_resumed(over_limit=semaphore in over_limit)


def _release(semaphores: Sequence[FairSemaphore]) -> None:
    for semaphore in semaphores:
        semaphore.release()


def _waiting(semaphores: Semaphores) -> int:
    return sum(each.waiting for each in semaphores.values())
