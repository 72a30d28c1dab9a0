"""Limits the bytes of answers that wait for their readers, per caller and in all.

Threat answered here: clients that ask for large answers and do not read them, on as many connections as they may have.
What is over the quota waits for room, and no more may wait than may be written; anything beyond is refused at once.
Small answers and events are exempt: the buffers of their connection bound them, and the write timeout their time.
"""

import asyncio
from collections import deque
from typing import Final

import msgspec

from gateway.config.models.server import SizeShares

EXEMPT_BYTES: Final = 64 * 1024
"""Bytes that a connection may hold uncounted: they fit its buffers, so waiting for their reader would be for nothing.
What was handed over stays bounded, however small each write is: `StreamWriter.write` of aiohttp waits for the reader
after each 64 KiB, once the transport holds more than its high-water mark (asyncio: 64 KiB)."""


class _Turn(msgspec.Struct, frozen=True, eq=False):
    """An answer that waits for room."""

    size: int
    granted: asyncio.Future[None]


class WriteQuota:
    """Counts the bytes of answers from before they are handed to a connection until its reader has made room for them.

    An answer that is larger than the quota is written when nothing else is.
    """

    def __init__(self, shares: SizeShares | None = None) -> None:
        shares = shares or SizeShares()
        self.per_caller: Final = shares.per_caller
        self.in_all: Final = shares.in_all
        self.refused = 0
        """Answers that found no room."""
        self._written: Final = _ByteCount(shares)
        self._waiting: Final = _ByteCount(shares)
        self._turns: Final[dict[str, deque[_Turn]]] = {}

    def __len__(self) -> int:
        """Bytes that are being written."""
        return self._written.sum

    def take(self, caller: str, size: int) -> bool:
        """Take room at once, if there is some and none of the caller's answers waits for it."""
        if caller in self._turns or not self._written.has_room(caller, size):
            return False
        self._written.add(caller, size)
        return True

    async def wait(self, caller: str, size: int, *, seconds: float) -> bool:
        """Wait for room and take it; False if there is none in time, or too much waits already.

        A size of 0 waits for the caller's earlier turns alone.
        """
        if not self._waiting.has_room(caller, size):
            self.refused += 1
            return False
        turn = _Turn(size, asyncio.get_running_loop().create_future())
        self._turns.setdefault(caller, deque()).append(turn)
        self._waiting.add(caller, size)
        try:
            # Not under `asyncio.timeout`, which would drop a turn that is granted just as the time ends.
            await asyncio.wait([turn.granted], timeout=seconds)
        except asyncio.CancelledError:
            # Granted, and cancelled before it resumed: nobody else would give it back.
            if turn.granted.done():
                self._written.subtract(caller, size)
            raise
        finally:
            self._end_turn(caller, turn)
            self._grant()  # what was behind it may fit
        return turn.granted.done()

    def give_back(self, caller: str, size: int) -> None:
        self._written.subtract(caller, size)
        if self._turns:
            self._grant()

    def _grant(self) -> None:
        """Grant room to the first answer of each caller, if it fits now.

        Its turn ends when its waiter has resumed, so that nothing of the same caller is granted or taken before that.
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
    """Bytes by caller, and their sum."""

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
