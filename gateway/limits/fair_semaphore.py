"""A semaphore that is fair between callers and has a bounded queue. For one event loop.

Callers are served in rotation, and each caller's calls in order. If the queue is full and a caller has fewer calls in
it than the largest one, the largest caller's last call is refused instead.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from gateway.errors import ExecutionError, OverLimitError

_RETRY_SECONDS: Final = 1
"""The retry delay for refused callers. The duration of running calls is unknown."""

_Turn = asyncio.Future[None]

Limit = tuple[int, int]
"""The maximum numbers of running and of waiting calls."""


class CapacityShare(Protocol):
    """The part of a limit of several processes that one semaphore can use."""

    @property
    def limit(self) -> int: ...
    @property
    def is_claiming(self) -> bool: ...
    @property
    def elsewhere(self) -> tuple[int, int]: ...
    def of(self, limit: Limit) -> int: ...
    def most_waiting(self, limit: Limit) -> int: ...
    def freed(self) -> None: ...
    def changed(self) -> None: ...
    def reclaim(self) -> None: ...


class FairSemaphore:
    """Counts running calls and queues waiting ones.

    The limit is passed with each call, so that a reload takes effect at once. Suspended calls do not count. They resume
    ahead of the queue.
    """

    __slots__ = ("_capacity", "_name", "_queue", "_resuming", "running", "share", "suspended")

    def __init__(self, share: "Callable[[FairSemaphore], CapacityShare] | None" = None) -> None:
        """`share` creates the semaphore's share of a limit of several processes. None for a local limit."""
        self.running = 0
        self.suspended = 0
        self.share: Final = None if share is None else share(self)
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
        """The number of calls waiting to resume. They are never refused."""
        return len(self._resuming)

    @property
    def is_unused(self) -> bool:
        is_claiming = self.share is not None and self.share.is_claiming
        return not self.running and not self.suspended and not is_claiming

    def try_acquire(self, limit: Limit) -> bool:
        """Take a free slot. While calls wait, no slot is free, because `_wake` serves them first."""
        capacity = limit[0] if self.share is None else self.share.of(limit)
        if capacity != self._capacity:
            self.resize(capacity)
        if self.running >= self._capacity:
            return False
        self.running += 1
        return True

    async def acquire(self, limit: Limit, *, caller: str, deadline: float, name: str) -> None:
        """Wait for a slot until `deadline` (the event loop's clock). `name` is the configuration key of the limit.

        Raises:
            OverLimitError: The queue is full, or another caller's call has replaced this one in the queue.
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
            message = f"Timed out while waiting for its turn ({name}): other calls are still running."
            raise ExecutionError(message) from error

    def suspend(self) -> None:
        self.suspended += 1
        self.release()

    def note_resumed(self, *, over_limit: bool) -> None:
        """Count a suspended call as running. Set `over_limit` if the call did not wait in `reacquire`."""
        self.suspended -= 1
        self.running += over_limit

    def forget_suspended(self) -> None:
        self.suspended -= 1

    async def reacquire(self) -> None:
        """Wait for the slot of a suspended call."""
        # Ahead of the queue, because a running call can hold resources that others wait for.
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
        """Set the limit. Running calls continue."""
        self._capacity = capacity
        self._wake()

    def shorten(self, most: int) -> None:
        """Refuse waiting calls beyond a number, starting with the callers that have most of them."""
        while self._queue.length > most:
            self._refuse(self._queue.pop_last(self._queue.longest))

    def _tell_of_wait(self) -> None:
        if self.share is not None:
            self.share.changed()

    def _enqueue(self, caller: str, most: int) -> _Turn:
        # Otherwise one caller could fill the queue and block the others.
        greediest = self._queue.greediest(than=caller) if self._queue.length >= most else None
        if self._queue.length >= most and greediest is None:
            raise self._refusal()
        if greediest is not None:
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
        message = f"Busy: {running} calls are running and {waiting} are waiting ({self._name})"
        return OverLimitError(message, retry_after=_RETRY_SECONDS, limit=self._name)


class _CallerQueue:
    """Waiting calls by caller, with the next caller first."""

    __slots__ = ("_turns", "length")

    def __init__(self) -> None:
        self.length = 0
        self._turns: Final[dict[str, deque[_Turn]]] = {}

    def append(self, caller: str, turn: _Turn) -> None:
        self._turns.setdefault(caller, deque()).append(turn)
        self.length += 1

    def pop(self) -> _Turn:
        """Return the next turn, and move its caller to the end."""
        caller, turns = next(iter(self._turns.items()))
        # Reinserted, the caller is last in the dictionary.
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
        """Return the caller with the most turns, unless `than` would have as many with one more."""
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
