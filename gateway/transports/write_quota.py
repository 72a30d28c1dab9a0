"""Limits the response bytes that wait for their readers, per caller and in total.

This protects against clients that request large responses on many connections and do not read them. Responses over the
quota wait for room. Up to the same amount can wait, and anything beyond is refused. Small responses and events are
exempt, because connection buffers and the write timeout bound them.
"""

import asyncio
from collections import deque
from typing import Final

import msgspec

from gateway.config.models.server import SizeShares

EXEMPT_BYTES: Final = 64 * 1024
"""Bytes per connection that are not counted, because they fit the connection's buffers. aiohttp's `StreamWriter.write`
waits for the reader after each 64 KiB once the transport holds more than its high-water mark (asyncio: 64 KiB).
"""


class _Turn(msgspec.Struct, frozen=True, eq=False):
    """A response that waits for room."""

    size: int
    granted: asyncio.Future[None]


class WriteQuota:
    """Counts response bytes from before they are written until the reader has made room for them.

    A response larger than the quota is written when nothing else is.
    """

    def __init__(self, shares: SizeShares | None = None) -> None:
        shares = shares or SizeShares()
        self.per_caller: Final = shares.per_caller
        self.in_all: Final = shares.in_all
        self.refused = 0
        self._written: Final = _ByteCount(shares)
        self._waiting: Final = _ByteCount(shares)
        self._turns: Final[dict[str, deque[_Turn]]] = {}

    def __len__(self) -> int:
        """Return the number of bytes being written."""
        return self._written.sum

    def take(self, caller: str, size: int) -> bool:
        """Reserve room if there is some, and if no other response of the caller is waiting."""
        if caller in self._turns or not self._written.has_room(caller, size):
            return False
        self._written.add(caller, size)
        return True

    async def wait(self, caller: str, size: int, *, seconds: float) -> bool:
        """Wait for room and reserve it. Return False on a timeout, or if too many bytes already wait.

        A size of 0 only waits for the caller's earlier responses.
        """
        if not self._waiting.has_room(caller, size):
            self.refused += 1
            return False
        turn = _Turn(size, asyncio.get_running_loop().create_future())
        self._turns.setdefault(caller, deque()).append(turn)
        self._waiting.add(caller, size)
        try:
            # `asyncio.timeout` would drop a turn that is granted at the moment of the timeout.
            await asyncio.wait([turn.granted], timeout=seconds)
        except asyncio.CancelledError:
            # The turn was granted before the task was cancelled.
            if turn.granted.done():
                self._written.subtract(caller, size)
            raise
        finally:
            self._end_turn(caller, turn)
            self._grant()  # The next response may fit.
        return turn.granted.done()

    def release_bytes(self, caller: str, size: int) -> None:
        self._written.subtract(caller, size)
        if self._turns:
            self._grant()

    def _grant(self) -> None:
        """Grant room to the first waiting response of each caller if it fits.

        A turn ends when its task resumes. Until then nothing else is granted to the same caller.
        """
        for caller, turns in self._turns.items():
            turn = turns[0]
            if not turn.granted.done() and self._written.has_room(caller, turn.size):
                self._waiting.subtract(caller, turn.size)
                self._written.add(caller, turn.size)
                turn.granted.set_result(None)

    def _end_turn(self, caller: str, turn: _Turn) -> None:
        self._turns[caller].remove(turn)
        if not self._turns[caller]:
            del self._turns[caller]
        if not turn.granted.done():
            self.refused += 1
            self._waiting.subtract(caller, turn.size)


class _ByteCount:
    __slots__ = ("_by_caller", "_shares", "sum")

    def __init__(self, shares: SizeShares) -> None:
        self._shares = shares
        self._by_caller: dict[str, int] = {}
        self.sum = 0

    def has_room(self, caller: str, size: int) -> bool:
        if not size:
            return True
        own = self._by_caller.get(caller, 0)
        return (not own or own + size <= self._shares.per_caller) and (
            not self.sum or self.sum + size <= self._shares.in_all
        )

    def add(self, caller: str, size: int) -> None:
        self._by_caller[caller] = self._by_caller.get(caller, 0) + size
        self.sum += size

    def subtract(self, caller: str, size: int) -> None:
        self.sum -= size
        left = self._by_caller.get(caller, 0) - size
        if left:
            self._by_caller[caller] = left
        else:
            self._by_caller.pop(caller, None)
