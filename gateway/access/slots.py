"""Who may run: a place among the calls of the caller, of the primitive, and of all. In memory, one event loop.

The places are taken in this order, and in no other, so that no two calls can wait for each other. Why this one: who
waits for the calls of its own caller holds nobody else up, and a slow primitive's queue takes no place among all.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from gateway.access.lanes import Ceiling, Lanes


class HeldSlot(Protocol):
    """What a call holds while it runs."""

    def hold_until(self, task: asyncio.Task[None]) -> None:
        """Keep it taken, after the call was answered, until `task` is done."""

    def lend(self) -> None:
        """Let others have it until `take_back` or `seize`. What is lent, or was given back, stays so."""

    async def take_back(self) -> None:
        """Wait for it again, before calls that have not begun; should the wait be cancelled, seize it."""

    def seize(self) -> None:
        """Have it again at once, over the limits if need be: the call is about to end."""

    def release(self) -> None:
        """Give it back, once every task that it is held for is done."""


class Slots:
    """All places. They outlive reloads, so that an edit does not double what runs."""

    def __init__(self) -> None:
        self._callers: Final = Lanes()
        self._primitives: Final = Lanes()
        self._all: Final = Lanes()

    async def acquire(  # noqa: PLR0913 - three places, and who wants them until when
        self,
        primitive: str,
        ceiling: Ceiling,
        *,
        caller: str,
        deadline: float,
        of_caller: Ceiling | None = None,
        of_all: Ceiling | None = None,
    ) -> HeldSlot:
        """Take the places that a call needs, waiting for each until `deadline` (the event loop's clock).

        Raises:
            OverLimitError: a queue is full.
            ExecutionError: a place did not come free in time.
        """
        if of_caller is None and of_all is None:
            return await self._primitives.acquire(primitive, ceiling, deadline=deadline, caller=caller)
        held: list[HeldSlot] = []
        try:
            for lanes, key, wanted, limit in (
                (self._callers, caller, of_caller, "limits.concurrency, per_caller"),
                (self._primitives, primitive, ceiling, "concurrency"),
                (self._all, "", of_all, "limits.concurrency, in_all"),
            ):
                if wanted is not None:
                    place = await lanes.acquire(key, wanted, deadline=deadline, caller=caller, limit=limit)
                    held.append(place)
        except BaseException:
            _HeldSlots(held).release()
            raise
        return _HeldSlots(held)

    @property
    def running(self) -> int:
        """Calls, those within calls too."""
        return self._primitives.running - self._all.waiting

    @property
    def waiting(self) -> int:
        return self._callers.waiting + self._primitives.waiting + self._all.waiting

    @property
    def refused(self) -> int:
        """Calls for which there was no room even to wait."""
        return self._callers.refused + self._primitives.refused + self._all.refused


class _HeldSlots:
    """Several places that are held, lent and given back together."""

    __slots__ = ("_held",)

    def __init__(self, held: Sequence[HeldSlot]) -> None:
        self._held: Final = held

    def hold_until(self, task: asyncio.Task[None]) -> None:
        for each in self._held:
            each.hold_until(task)

    def lend(self) -> None:
        for each in self._held:
            each.lend()

    async def take_back(self) -> None:
        try:
            for each in self._held:
                await each.take_back()
        except BaseException:
            self.seize()
            raise

    def seize(self) -> None:
        for each in self._held:
            each.seize()

    def release(self) -> None:
        for each in self._held:
            each.release()
