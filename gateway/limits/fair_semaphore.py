"""A semaphore with a bounded queue that is fair between callers.

Callers take turns, and each caller's calls are served in order. If the queue is full, a new call replaces the last call
of the caller with the most waiting calls. The new call is refused if its own caller would then have as many.

A limit that replicas share has a semaphore in each replica. The semaphore sends the numbers of used and wanted slots to
the store, and receives the number of slots that this replica can use. While the store is unavailable, each replica
applies the whole limit by itself.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

from gateway.errors import ExecutionError, OverLimitError, StoreUnavailableError
from gateway.limits.rate_limiter import bounded
from gateway.state.redis_limits import RedisSemaphores

log: Final = structlog.get_logger(__name__)

_RETRY_SECONDS: Final = 1
"""The retry delay for refused calls in seconds. The real delay is unknown, because it depends on the running calls."""

_CLAIM_AGAIN_SECONDS: Final = 0.5
"""While calls wait, slots are claimed from the store again at this interval."""
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

    __slots__ = ("_capacity", "_name", "_queue", "_resuming", "running", "share", "suspended")

    def __init__(self, store: RedisSemaphores | None = None, *, name: str = "") -> None:
        """Create a semaphore. With `store`, all replicas share the limit. `name` identifies the limit in the store."""
        self.running = 0
        self.suspended = 0
        self.share: Final = None if store is None else SharedCapacity(store, self, name=name)
        self._capacity = 0
        self._name = ""
        self._queue: Final = _CallerQueue()
        self._resuming: Final[deque[_Turn]] = deque()

    @property
    def capacity(self) -> int:
        return self._capacity if self.share is None else self.share.limit

    @property
    def waiting(self) -> int:
        return self._queue.length + len(self._resuming)

    @property
    def resuming(self) -> int:
        """The number of suspended calls that wait to resume. Such calls are never refused."""
        return len(self._resuming)

    @property
    def is_unused(self) -> bool:
        is_claiming = self.share is not None and self.share.is_claiming
        return not self.running and not self.suspended and not is_claiming

    def try_acquire(self, limit: Limit) -> bool:
        """Take a slot and return True, or return False if no slot is free. Waiting calls get free slots first."""
        capacity = limit[0] if self.share is None else self.share.of(limit)
        if capacity != self._capacity:
            self.resize(capacity)
        if self.running >= self._capacity:
            return False
        self.running += 1
        return True

    async def acquire(self, limit: Limit, *, caller: str, deadline: float, name: str) -> None:
        """Wait for a slot until `deadline` on the event loop's clock. `name` is the configuration key of the limit.

        Raises:
            OverLimitError: The queue is full, or another caller's call has displaced this call from the queue.
            ExecutionError: The deadline has passed.
        """
        if self.try_acquire(limit):
            return
        self._name = name
        turn = self._enqueue(caller, limit[1] if self.share is None else self.share.most_waiting(limit))
        self._tell_of_wait()
        try:
            async with asyncio.timeout_at(deadline):
                await self._wait(turn, partial(self._queue.remove, caller, turn))
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

    def forget_suspended(self) -> None:
        self.suspended -= 1

    async def reacquire(self) -> None:
        # Resume ahead of the queue, because this call can hold resources that queued calls wait for.
        if self.running < self._capacity:
            self.running += 1
            return
        turn: _Turn = asyncio.get_running_loop().create_future()
        self._resuming.append(turn)
        self._tell_of_wait()
        await self._wait(turn, partial(_discard, self._resuming, turn))

    def release(self) -> None:
        self.running -= 1
        if self.share is not None:
            # The store decides who is next, possibly at another replica.
            self.share.freed()
        elif self._resuming or self._queue.length:
            self._wake()

    def resize(self, capacity: int) -> None:
        self._capacity = capacity
        self._wake()

    def shorten(self, most: int) -> None:
        """Refuse waiting calls, each time of the caller with the most of them, until at most `most` calls are left."""
        while self._queue.length > most:
            self._refuse(self._queue.pop_last(self._queue.longest))

    def _tell_of_wait(self) -> None:
        if self.share is not None:
            self.share.changed()

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
        while self.running < self._capacity and (self._resuming or self._queue.length):
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
                self.release()
            raise

    def _refuse(self, turn: _Turn) -> None:
        if not turn.done():
            turn.set_exception(self._refusal())

    def _refusal(self) -> OverLimitError:
        running, waiting = (0, 0) if self.share is None else self.share.elsewhere
        running, waiting = running + self.running, waiting + self._queue.length
        message = f"Too many concurrent calls: {running} running, {waiting} waiting ({self._name})"
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

    @property
    def longest(self) -> str:
        return max(self._turns, key=lambda caller: len(self._turns[caller]))

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


class SharedCapacity:
    """Manages the slots that the shared store grants to one semaphore."""

    def __init__(self, store: RedisSemaphores, semaphore: FairSemaphore, *, name: str) -> None:
        self._store: Final = store
        self._semaphore: Final = semaphore
        self._name: Final = name
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
        """The last known numbers of running and waiting calls at other replicas."""
        return (0, 0) if self._is_own else self._elsewhere

    def of(self, limit: Limit) -> int:
        """Set the limit and return how many calls can run in this process now."""
        self._limit = limit
        return limit[0] if self._is_own else self._granted

    def most_waiting(self, limit: Limit) -> int:
        """Return how many calls can wait in this process now."""
        # Calls also wait here until the store grants their slots.
        return limit[1] if self._is_own else limit[1] + max(0, limit[0] - self._semaphore.running)

    def freed(self) -> None:
        if self._is_own:
            self._semaphore.resize(self._limit[0])
        else:  # Return the slot to the store first, because a call of another replica could have waited longer.
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
        """Report the used slots to the store again, because the store could have lost its data."""
        self._is_own = False
        self._granted = self._semaphore.running
        if self._granted or self._semaphore.waiting:
            self.changed()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._claiming = None
        if not task.cancelled() and (bug := task.exception()) is not None:
            log.error("limit is not shared: this replica counts separately", limit=self._name, exc_info=bug)
            self._count_alone()
        # Start a new task for a change that the finished task did not see.
        if self._changed.is_set():
            self.changed()

    async def _claim_all(self) -> None:
        while self._changed.is_set() or self._semaphore.waiting:
            if not self._changed.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(_CLAIM_AGAIN_SECONDS):
                        await self._changed.wait()
            self._changed.clear()
            if not await self._claim():
                return

    async def _claim(self) -> bool:
        semaphore = self._semaphore
        used = self._granted = semaphore.running  # No call starts until the store replies.
        semaphore.resize(used)
        try:
            capacity, running, waiting = await self._store.claim(
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
        # The store is available again.
        self._is_own = False
        self._granted = capacity
        self._elsewhere = (running, waiting)
        semaphore.resize(capacity)
        # After a concurrent change these numbers are outdated, and the next claim decides.
        if not self._changed.is_set():
            semaphore.shorten(max(0, self._limit[1] - waiting))
        return True

    def _count_alone(self) -> None:
        self._is_own = True
        self._changed.clear()
        self._semaphore.resize(self._limit[0])
        self._semaphore.shorten(self._limit[1])


class Semaphores(dict[str, FairSemaphore]):
    """The semaphores of a limit by key. If there are many, unused ones are dropped."""

    def __init__(self, name: str = "", *, store: RedisSemaphores | None = None) -> None:
        """With `store`, all replicas share the limit. `name` identifies the limit in the store."""
        super().__init__()
        self._name: Final = name
        self._store: Final = store
        if store is not None:
            store.on_loss(self._reclaim)

    def __missing__(self, key: str) -> FairSemaphore:
        if len(self) >= _MAX_UNUSED:
            for unused in [each for each, old in self.items() if old.is_unused]:
                del self[unused]
        semaphore = self[key] = FairSemaphore(self._store, name=f"{self._name}:{bounded(key)}")
        return semaphore

    def _reclaim(self) -> None:
        for semaphore in self.values():
            if semaphore.share is not None:
                semaphore.share.reclaim()
