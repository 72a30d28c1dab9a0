"""How many calls may run at once in one lane, and how many may wait for a place in it. In memory, one event loop.

Fair between callers: those that wait have their turns in rotation, and where the queue is full, a caller who has more
waiting than the newcomer gives way.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from gateway.errors import ExecutionError, OverLimitError

_RETRY_SECONDS: Final = 1
"""When to come back to a lane that is full: nobody knows how long its calls take."""
_MOST_IDLE: Final = 1024
"""Lanes that are kept for their next call, which would have to make them anew; keys may be callers' addresses."""

Ceiling = tuple[int, int]
"""How many may run at once, and how many may wait."""


class Lanes:
    """Lanes by key. They outlive reloads, so that an edit does not double what runs."""

    def __init__(self) -> None:
        self._lanes: Final[dict[str, _Lane]] = {}
        self.refused = 0
        """Calls that found the queue full, or had to leave it for another caller's."""

    async def acquire(
        self, key: str, ceiling: Ceiling, *, deadline: float, caller: str = "", limit: str = "concurrency"
    ) -> "HeldPlace":
        """Take a place, waiting for one until `deadline` (the event loop's clock) if the queue has room.

        `limit` is what the file calls it.

        Raises:
            OverLimitError: the queue is full.
            ExecutionError: none came free in time.
        """
        lane = self._lanes.get(key) or self._new(key)
        lane.concurrency, queue = ceiling
        if lane.running < lane.concurrency and not lane.is_waited_for:
            lane.running += 1
        else:
            try:
                await lane.wait(queue, deadline, caller=caller, limit=limit)
            except OverLimitError:
                self.refused += 1
                raise
        return HeldPlace(self, key, lane)

    @property
    def running(self) -> int:
        return sum(lane.running for lane in self._lanes.values())

    @property
    def waiting(self) -> int:
        return sum(lane.queue.length + len(lane.returning) for lane in self._lanes.values())

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
        if lane.is_idle and len(self._lanes) > _MOST_IDLE:
            self._lanes.pop(key, None)

    def _new(self, key: str) -> "_Lane":
        lane = self._lanes[key] = _Lane()
        return lane


class HeldPlace:
    """One place; given back once it was released and every task that it waits for is done."""

    __slots__ = ("_is_lent", "_key", "_lane", "_lanes", "_pending")

    def __init__(self, lanes: Lanes, key: str, lane: "_Lane") -> None:
        self._lanes = lanes
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
            self._lanes.give_back(self._key, self._lane)

    async def take_back(self) -> None:
        """Wait for a place again, before those that have not begun; should the wait be cancelled, seize one."""
        if not self._is_lent:
            return
        try:
            lane = await self._lanes.take_again(self._key, self._lane)
        except BaseException:
            self.seize()
            raise
        if self._is_lent:
            self._is_lent, self._lane = False, lane
        else:  # it was seized or released meanwhile
            self._lanes.give_back(self._key, lane)

    def seize(self) -> None:
        """Have the place again at once, over the limit if need be: the call is about to end."""
        if self._is_lent:
            self._is_lent = False
            self._lane = self._lanes.seize(self._key, self._lane)

    def release(self) -> None:
        self._pending -= 1
        if self._pending == 0 and not self._is_lent:
            self._lanes.give_back(self._key, self._lane)
        elif self._pending == 0:
            self._is_lent = False


Place = asyncio.Future[None]


class _Lane:
    __slots__ = ("concurrency", "queue", "returning", "running")

    def __init__(self) -> None:
        self.concurrency = 0
        self.running = 0
        self.queue = _Queue()
        """Calls that have not begun."""
        self.returning: deque[Place] = deque()
        """Calls that have lent their place, and go first."""

    @property
    def is_waited_for(self) -> bool:
        return bool(self.queue.length or self.returning)

    @property
    def is_idle(self) -> bool:
        return not self.running and not self.is_waited_for

    async def wait(self, limit_of_queue: int, deadline: float, *, caller: str, limit: str) -> None:
        loser = None if self.queue.length < limit_of_queue else self.queue.longest(than=caller)
        if self.queue.length >= limit_of_queue and loser is None:
            raise self._busy(limit)
        place = asyncio.get_running_loop().create_future()
        if loser is not None and not (left := self.queue.pop_last(loser)).done():
            left.set_exception(self._busy(limit))
        self.queue.append(caller, place)
        try:
            async with asyncio.timeout_at(deadline):
                await self._come_free(place, lambda: self.queue.remove(caller, place))
        except TimeoutError as error:
            raise ExecutionError(
                f"Timed out while waiting for its turn ({limit}): other calls are still running."
            ) from error

    async def wait_first(self) -> None:
        place = asyncio.get_running_loop().create_future()
        self.returning.appendleft(place)

        def leave() -> None:
            if place in self.returning:
                self.returning.remove(place)

        await self._come_free(place, leave)

    def wake(self) -> None:
        while self.running < self.concurrency and self.is_waited_for:
            place = self.returning.popleft() if self.returning else self.queue.pop()
            if not place.done():
                self.running += 1
                place.set_result(None)

    async def _come_free(self, place: Place, leave: Callable[[], None]) -> None:
        try:
            await place
        except BaseException:
            if not place.done() or place.cancelled():
                leave()
            elif place.exception() is None:  # it came free in the very moment that we left
                self.running -= 1
            self.wake()
            raise

    def _busy(self, limit: str) -> OverLimitError:
        return OverLimitError(
            f"Busy: {self.running} calls are running and {self.queue.length} are waiting ({limit})",
            retry_after=_RETRY_SECONDS,
        )


class _Queue:
    """Callers take turns; of one caller, who came first goes first."""

    __slots__ = ("_places", "length")

    def __init__(self) -> None:
        self.length = 0
        self._places: dict[str, deque[Place]] = {}

    def append(self, caller: str, place: Place) -> None:
        self._places.setdefault(caller, deque()).append(place)
        self.length += 1

    def pop(self) -> Place:
        """The next in turn."""
        caller, places = next(iter(self._places.items()))
        place = places.popleft()
        self._places[caller] = self._places.pop(caller)  # its next turn comes after everybody else's
        self._note_left(caller)
        return place

    def pop_last(self, caller: str) -> Place:
        """The one of a caller that came last."""
        place = self._places[caller].pop()
        self._note_left(caller)
        return place

    def remove(self, caller: str, place: Place) -> None:
        places = self._places.get(caller)
        if places is not None and place in places:
            places.remove(place)
            self._note_left(caller)

    def longest(self, *, than: str) -> str | None:
        """The caller with most waiting, if that is more than this one would have with one more."""
        caller, places = max(self._places.items(), key=lambda item: len(item[1]), default=(than, ()))
        return caller if len(places) > len(self._places.get(than, ())) + 1 else None

    def _note_left(self, caller: str) -> None:
        self.length -= 1
        if not self._places[caller]:
            del self._places[caller]
