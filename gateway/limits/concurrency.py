"""Limits concurrent calls: of each caller, of each primitive, and of all. In memory, for one event loop.

Where there are replicas, the limits of callers and of all are theirs together, and those of primitives each one's own.

A call that needs several permits acquires them in this order, and all calls do, so that no two can wait for each
other. Why this order: a call that waits for its own caller's calls delays nobody else, and calls that queue for a slow
primitive take nothing of the limit of all.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from gateway.errors import OverLimitError
from gateway.limits.fair_semaphore import FairSemaphore, Limit
from gateway.limits.shared_capacity import Semaphores
from gateway.state.redis_semaphores import RedisSemaphores


class PlaceUse(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of one caller, or of one primitive, that run and wait."""

    name: str
    """The caller, or `tools/call/deploy`."""
    is_caller: bool
    running: int
    waiting: int
    capacity: int


class ConcurrencyLimiter:
    """All semaphores. They outlive reloads, so that an edit of the file does not double what runs."""

    def __init__(self, *, shared: RedisSemaphores | None = None) -> None:
        """Count nothing yet. `shared`: counts the calls of each caller and of all over all replicas."""
        self._callers: Final = Semaphores("calls", store=shared)
        self._primitives: Final = Semaphores()
        self._all: Final = Semaphores("all calls", store=shared)
        self._shared: Final = shared
        self.refused = 0
        """Calls that found a queue full, or had to leave it for another caller's."""

    @property
    def is_shared(self) -> bool:
        return self._shared is not None and not self._shared.is_away

    def try_acquire(self, primitive: str, limit: Limit) -> "ConcurrencyPermit | None":
        """Return the permit of a call that needs no other limit, if it need not wait for it."""
        semaphore = self._primitives[primitive]
        return ConcurrencyPermit((semaphore,)) if semaphore.try_acquire(limit) else None

    async def acquire(  # noqa: PLR0913 - three limits, and who waits until when
        self,
        primitive: str,
        limit: Limit,
        *,
        caller: str,
        deadline: float,
        of_caller: Limit | None = None,
        of_all: Limit | None = None,
    ) -> "ConcurrencyPermit":
        """Wait for the permit of a call, until `deadline` (the event loop's clock).

        Raises:
            OverLimitError: a queue is full.
            ExecutionError: the deadline has passed.
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
            # Not in a `ConcurrencyPermit` yet: nobody else could give them back.
            _release(taken)
            self.refused += isinstance(error, OverLimitError)
            raise
        return ConcurrencyPermit(tuple(taken))

    @property
    def running(self) -> int:
        """Calls, those within calls too."""
        # A call that waits for the limit of all, the last of the three, holds the place of its primitive already.
        return sum(each.running for each in self._primitives.values()) - _waiting(self._all)

    def uses(self) -> Iterator[PlaceUse]:
        """The use of each caller's share, and of each primitive's places, where there is any."""
        for semaphores, is_caller in ((self._callers, True), (self._primitives, False)):
            for name, each in semaphores.items():
                if each.running or each.waiting:
                    yield PlaceUse(
                        name=name,
                        is_caller=is_caller,
                        running=each.running,
                        waiting=each.waiting,
                        capacity=each.capacity,
                    )

    @property
    def waiting(self) -> int:
        return sum(map(_waiting, (self._callers, self._primitives, self._all)))


class ConcurrencyPermit:
    """The right of a call to run: a place of each of its semaphores."""

    __slots__ = ("_holders", "_is_suspended", "_semaphores")

    def __init__(self, semaphores: tuple[FairSemaphore, ...]) -> None:
        self._semaphores: Final = semaphores
        self._holders = 1
        """The call, and the tasks that it left behind."""
        self._is_suspended = False

    def hold_until_done(self, task: asyncio.Task[None]) -> None:
        """Keep the permit, after the call was answered, until `task` is done."""
        self._holders += 1
        task.add_done_callback(lambda _: self.release())

    def suspend(self) -> None:
        """Let other calls run until `resume` or `force_resume`, as while a question to the client is open."""
        if self._holders and not self._is_suspended:
            self._is_suspended = True
            for semaphore in self._semaphores:
                semaphore.suspend()

    async def resume(self) -> None:
        """Wait for the permit, ahead of calls that have not begun; if the wait is cancelled, see `force_resume`."""
        taken = 0
        try:
            for semaphore in self._semaphores if self._is_suspended else ():
                await semaphore.reacquire()
                taken += 1
        finally:
            # A wait that was cancelled, too, ends with the permit held: the call is about to end, and releases it.
            if self._is_suspended:
                self._note_resumed(over_limit=self._semaphores[taken:])
            else:  # forced or released meanwhile
                _release(self._semaphores[:taken])

    def force_resume(self) -> None:
        """Hold the permit again at once, over the limits if need be: the call was cancelled and is about to end.

        Why not go on without: what a call leaves behind, such as a thread, would be counted nowhere.
        """
        if self._is_suspended:
            self._note_resumed(over_limit=self._semaphores)

    def release(self) -> None:
        """Give the permit back, which counts once the call and every task that holds it have done so."""
        self._holders -= 1
        if self._holders == 0:
            for semaphore in self._semaphores:
                if self._is_suspended:
                    semaphore.forget_suspended()
                else:
                    semaphore.release()
            self._is_suspended = False

    def _note_resumed(self, *, over_limit: Sequence[FairSemaphore]) -> None:
        """Hold every place again; those `over_limit` were not waited for."""
        self._is_suspended = False
        for semaphore in self._semaphores:
            semaphore.note_resumed(over_limit=semaphore in over_limit)


def _release(semaphores: Sequence[FairSemaphore]) -> None:
    for semaphore in semaphores:
        semaphore.release()


def _waiting(semaphores: Semaphores) -> int:
    return sum(each.waiting for each in semaphores.values())
