"""A semaphore with a bounded queue that is fair between callers.

Callers take turns, and each caller's calls are served in order. If the queue is full, a new call replaces the last call
of the caller with the most waiting calls. The new call is refused if its own caller would then have as many.

For a limit that replicas share, a call first needs a slot of its replica's semaphore, and then a slot in the store.
While the store is unavailable, each replica applies the whole limit by itself.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from gateway.errors import ExecutionError, OverLimitError
from gateway.limits.rate_limiter import bounded
from gateway.state.redis_limits import RedisSemaphores, RedisSlots

_RETRY_SECONDS: Final = 1
"""The retry delay for refused calls in seconds. The real delay is unknown, because it depends on the running calls."""

_MAX_UNUSED: Final = 1024
"""If there are this many semaphores, unused ones are dropped. Otherwise, each client address would add a semaphore."""

_Turn = asyncio.Future[None]

Limit = tuple[int, int]
"""The maximum number of running calls and the maximum number of waiting calls."""


class FairSemaphore:
    """Counts running calls and queues waiting calls.

    The limit is passed with each call, so that a reload takes effect at once. Suspended calls do not count as running,
    and resume ahead of the queue.
    """

    __slots__ = ("_claiming", "_name", "_queue", "_resuming", "_slots", "capacity", "running", "suspended")

    def __init__(self, slots: RedisSlots | None = None) -> None:
        """Create a semaphore. With `slots`, all replicas share the limit."""
        self.running = 0
        """The number of calls with a slot of this semaphore, including calls that wait for a slot in the store."""
        self.suspended = 0
        self.capacity = 0
        self._slots: Final = slots
        self._claiming = 0
        self._name = ""
        self._queue: Final = _CallerQueue()
        self._resuming: Final[deque[_Turn]] = deque()

    @property
    def in_use(self) -> int:
        """The number of running and waiting calls."""
        return self.running + self._queue.length + len(self._resuming)

    @property
    def waiting(self) -> int:
        return self._claiming + self._queue.length + len(self._resuming)

    @property
    def is_unused(self) -> bool:
        return not self.running and not self.suspended and (self._slots is None or self._slots.is_unused)

    def try_acquire(self, limit: Limit) -> bool:
        """Take a slot of this semaphore and return True, or return False if no slot is free.

        Waiting calls get free slots first.
        """
        if limit[0] != self.capacity:
            self.capacity = limit[0]
            self._wake()
        if self.running >= self.capacity:
            return False
        self.running += 1
        return True

    async def acquire(self, limit: Limit, *, caller: str, deadline: float, name: str) -> None:
        """Wait for a slot until `deadline` on the event loop's clock. `name` is the configuration key of the limit.

        Raises:
            OverLimitError: The queue is full, or another caller's call has displaced this call from the queue.
            ExecutionError: The deadline has passed.
        """
        has_slot = self.try_acquire(limit)
        if has_slot and self._slots is None:
            return
        self._name = name
        try:
            turn = None if has_slot else self._enqueue(caller, limit[1])
            async with asyncio.timeout_at(deadline):
                if turn is not None:
                    await self._wait(turn, partial(self._queue.remove, caller, turn))
                if self._slots is not None:
                    await self._claim(self._slots, has_waited=not has_slot, queue=limit[1])
        except TimeoutError as error:
            message = f"The call timed out in the queue ({name}), because other calls are still running."
            raise ExecutionError(message) from error

    def suspend(self) -> None:
        self.suspended += 1
        self.release()

    def note_resumed(self, *, over_limit: bool) -> None:
        """Count a suspended call as running. With `over_limit`, the call has not waited for a slot."""
        self.suspended -= 1
        self.running += over_limit
        if over_limit and self._slots is not None:
            self._slots.take_over_limit()

    def forget_suspended(self) -> None:
        self.suspended -= 1

    async def reacquire(self) -> None:
        # Resume ahead of the queue, because this call can hold resources that queued calls wait for.
        has_slot = self.running < self.capacity
        if has_slot:
            self.running += 1
        else:
            turn: _Turn = asyncio.get_running_loop().create_future()
            self._resuming.append(turn)
            await self._wait(turn, partial(_discard, self._resuming, turn))
        if self._slots is not None:
            await self._claim(self._slots, has_waited=not has_slot, queue=math.inf)

    def release(self) -> None:
        self._free()
        if self._slots is not None:
            self._slots.release()

    def _free(self) -> None:
        self.running -= 1
        if self._resuming or self._queue.length:
            self._wake()

    async def _claim(self, slots: RedisSlots, *, has_waited: bool, queue: float) -> None:
        """Wait for a slot in the store. Refuse the call if more than `queue` calls would wait."""
        self._claiming += 1
        is_granted = False
        try:
            is_granted = await slots.take(self.capacity, has_waited=has_waited, queue=queue)
        finally:
            self._claiming -= 1
            if not is_granted:
                self._free()
        if not is_granted:
            raise self._refusal()

    def _enqueue(self, caller: str, most: int) -> _Turn:
        # Displace a call of the greediest caller, because one caller could otherwise fill the queue and block others.
        if self._queue.length >= most:
            greediest = self._queue.greediest(than=caller)
            if greediest is None:
                raise self._refusal()
            self._refuse(self._queue.pop_last(greediest))
        turn: _Turn = asyncio.get_running_loop().create_future()
        self._queue.append(caller, turn)
        return turn

    def _wake(self) -> None:
        while self.running < self.capacity and (self._resuming or self._queue.length):
            turn = self._resuming.popleft() if self._resuming else self._queue.pop()
            # A cancelled turn is done, but leaves the queue only when its task runs.
            if not turn.done():
                self.running += 1
                turn.set_result(None)

    async def _wait(self, turn: _Turn, leave: Callable[[], object]) -> None:
        try:
            await turn
        except BaseException:
            if not turn.done() or turn.cancelled():
                leave()
            elif turn.exception() is None:  # The slot was granted before the cancellation.
                self._free()
            raise

    def _refuse(self, turn: _Turn) -> None:
        if not turn.done():
            turn.set_exception(self._refusal())

    def _refusal(self) -> OverLimitError:
        # Calls of other replicas can run instead of calls here.
        running = max(self.running, self.capacity)
        message = f"Too many concurrent calls: {running} running, {self._queue.length} waiting ({self._name})"
        return OverLimitError(message, retry_after=_RETRY_SECONDS, limit=self._name)


class _CallerQueue:
    """Queues waiting calls by caller, and serves the callers in rotation."""

    __slots__ = ("_turns", "length")

    def __init__(self) -> None:
        self.length = 0
        self._turns: Final[dict[str, deque[_Turn]]] = {}

    def append(self, caller: str, turn: _Turn) -> None:
        self._turns.setdefault(caller, deque()).append(turn)
        self.length += 1

    def pop(self) -> _Turn:
        caller, turns = next(iter(self._turns.items()))
        # Reinserting the caller makes it the last one in the dictionary.
        self._turns[caller] = self._turns.pop(caller)
        turn = turns.popleft()
        self._count_out(caller)
        return turn

    def pop_last(self, caller: str) -> _Turn:
        turn = self._turns[caller].pop()
        self._count_out(caller)
        return turn

    def remove(self, caller: str, turn: _Turn) -> None:
        if _discard(self._turns.get(caller, deque()), turn):
            self._count_out(caller)

    def greediest(self, *, than: str) -> str | None:
        """Return the caller with the most waiting calls, or None if `than` has as many, counting one more call."""
        caller, turns = max(self._turns.items(), key=lambda item: len(item[1]), default=(than, ()))
        return caller if len(turns) > len(self._turns.get(than, ())) + 1 else None

    def _count_out(self, caller: str) -> None:
        self.length -= 1
        if not self._turns[caller]:
            del self._turns[caller]


def _discard(turns: deque[_Turn], turn: _Turn) -> bool:
    if turn not in turns:
        return False
    turns.remove(turn)
    return True


class Semaphores(dict[str, FairSemaphore]):
    """The semaphores of a limit by key. If there are many, unused ones are dropped."""

    def __init__(self, name: str = "", *, store: RedisSemaphores | None = None) -> None:
        """With `store`, all replicas share the limit. `name` identifies the limit in the store."""
        super().__init__()
        self._name: Final = name
        self._store: Final = store

    def __missing__(self, key: str) -> FairSemaphore:
        if len(self) >= _MAX_UNUSED:
            for unused in [each for each, old in self.items() if old.is_unused]:
                del self[unused]
        slots = None if self._store is None else self._store.slots(f"{self._name}:{bounded(key)}")
        semaphore = self[key] = FairSemaphore(slots)
        return semaphore
