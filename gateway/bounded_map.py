"""A mapping with expiry and LRU eviction. It is not thread-safe."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedMap(Generic[K, V]):
    """A mapping whose entries have a total cost of at most `bound`."""

    def __init__(self, bound: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._bound: Final = bound
        self._clock: Final = clock
        self._entries: Final[OrderedDict[K, tuple[V, float, int]]] = OrderedDict()
        """Maps each key to its value, expiry and cost. The least recently used key is first."""
        self._cost = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        if (entry := self._entries.get(key)) is None:
            return None
        value, expires, _ = entry
        if expires <= self._clock():
            self.discard(key)
            return None
        self._entries.move_to_end(key)
        return value

    def put(self, key: K, value: V, *, expires: float = math.inf, cost: int = 1) -> None:
        """Store a value until `expires`. A value whose cost exceeds the bound is not stored."""
        self.discard(key)
        if cost > self._bound:
            return
        # Remove at most two expired entries per call, so that each call is fast.
        for _ in range(2):
            oldest = next(iter(self._entries.items()), None)
            if oldest is None or oldest[1][1] > self._clock():
                break
            self.discard(oldest[0])
        while self._cost + cost > self._bound:
            self.discard(next(iter(self._entries)))
        self._entries[key] = (value, expires, cost)
        self._cost += cost

    def discard(self, key: K) -> None:
        if (entry := self._entries.pop(key, None)) is not None:
            self._cost -= entry[2]

    def items(self) -> Iterator[tuple[K, V]]:
        """Iterate over unexpired entries, least recently used first."""
        now = self._clock()
        return ((key, value) for key, (value, expires, _) in self._entries.items() if expires > now)
