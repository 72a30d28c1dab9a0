"""How many calls of one primitive may run at once, and how many may wait for a place. In memory, one event loop."""

import asyncio
from collections import deque
from typing import Final

from gateway.errors import ExecutionError


class Slots:
    """Places by key. They outlive reloads, so that an edit does not double what runs."""

    def __init__(self) -> None:
        self._lanes: Final[dict[str, _Lane]] = {}

    async def acquire(self, key: str, *, concurrency: int, queue: int, deadline: float) -> "HeldSlot":
        """Take a place, waiting for one until `deadline` (the event loop's clock) if the queue has room.

        Raises:
            ExecutionError: the queue is full, or none came free in time.
        """
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane()
        lane.concurrency = concurrency
        if lane.running < concurrency and not lane.waiting:
            lane.running += 1
        else:
            await lane.wait(queue, deadline)
        return HeldSlot(self, key, lane)

    @property
    def running(self) -> int:
        return sum(lane.running for lane in self._lanes.values())

    @property
    def waiting(self) -> int:
        return sum(len(lane.waiting) for lane in self._lanes.values())

    async def take_again(self, key: str, lane: "_Lane") -> "_Lane":
        lane = self._lanes.setdefault(key, lane)
        if lane.running < lane.concurrency:
            lane.running += 1
        else:
            await lane.wait_first()
        return lane

    def seize(self, key: str, lane: "_Lane") -> "_Lane":
        lane = self._lanes.setdefault(key, lane)
        lane.running += 1
        return lane

    def give_back(self, key: str, lane: "_Lane") -> None:
        lane.running -= 1
        lane.wake()
        if not lane.running and not lane.waiting:
            self._lanes.pop(key, None)


class HeldSlot:
    """One place; given back once it was released and every task that it waits for is done."""

    __slots__ = ("_is_lent", "_key", "_lane", "_pending", "_slots")

    def __init__(self, slots: Slots, key: str, lane: "_Lane") -> None:
        self._slots = slots
        self._key = key
        self._lane = lane
        self._pending = 1
        self._is_lent = False

    def hold_until(self, task: asyncio.Task[None]) -> None:
        self._pending += 1
        task.add_done_callback(lambda _: self.release())

    def lend(self) -> None:
        """Let others have the place until `take_back` or `seize`. What is lent, or was given back, stays so."""
        if self._pending and not self._is_lent:
            self._is_lent = True
            self._slots.give_back(self._key, self._lane)

    async def take_back(self) -> None:
        """Wait for a place again, before those that have not begun; should the wait be cancelled, seize one."""
        if not self._is_lent:
            return
        try:
            lane = await self._slots.take_again(self._key, self._lane)
        except BaseException:
            self.seize()
            raise
        if self._is_lent:
            self._is_lent, self._lane = False, lane
        else:  # it was seized or released meanwhile
            self._slots.give_back(self._key, lane)

    def seize(self) -> None:
        """Have the place again at once, over the limit if need be: the call is about to end."""
        if self._is_lent:
            self._is_lent = False
            self._lane = self._slots.seize(self._key, self._lane)

    def release(self) -> None:
        self._pending -= 1
        if self._pending == 0 and not self._is_lent:
            self._slots.give_back(self._key, self._lane)
        elif self._pending == 0:
            self._is_lent = False


class _Lane:
    __slots__ = ("concurrency", "running", "waiting")

    def __init__(self) -> None:
        self.concurrency = 0
        self.running = 0
        self.waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self, queue: int, deadline: float) -> None:
        if len(self.waiting) >= queue:
            raise ExecutionError(
                f"Busy: {self.running} calls are running and {len(self.waiting)} are waiting. Try again later."
            )
        place = asyncio.get_running_loop().create_future()
        self.waiting.append(place)
        try:
            async with asyncio.timeout_at(deadline):
                await self._come_free(place)
        except TimeoutError as error:
            raise ExecutionError("Timed out while waiting for its turn: other calls are still running.") from error

    async def wait_first(self) -> None:
        place = asyncio.get_running_loop().create_future()
        self.waiting.appendleft(place)
        await self._come_free(place)

    async def _come_free(self, place: asyncio.Future[None]) -> None:
        try:
            await place
        except BaseException:
            if place.done() and not place.cancelled():  # it came free in the very moment that we left
                self.running -= 1
            elif place in self.waiting:
                self.waiting.remove(place)
            self.wake()
            raise

    def wake(self) -> None:
        while self.waiting and self.running < self.concurrency:
            place = self.waiting.popleft()
            if not place.done():
                self.running += 1
                place.set_result(None)
