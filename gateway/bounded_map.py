"""A mapping with expiry and LRU eviction. Not thread-safe."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Entry(NamedTuple, Generic[V]):
    value: V
    expires: float
    cost: int


class BoundedMap(Generic[K, V]):
    """A mapping whose entries have a total cost of at most `bound`."""

    def __init__(self, bound: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._bound: Final = bound
        self._clock: Final = clock
        self._entries: Final[OrderedDict[K, _Entry[V]]] = OrderedDict()
        """Least recently used first."""
        self._cost = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.expires <= self._clock():
            self.discard(key)
            return None
        self._entries.move_to_end(key)
        return entry.value

    def put(self, key: K, value: V, *, expires: float = math.inf, cost: int = 1) -> None:
        """Store a value until `expires`, unless its cost exceeds the bound."""
        self.discard(key)
        if cost > self._bound:
            return
        # Only two expired entries, so that no call takes long.
        for _ in range(2):
            oldest = next(iter(self._entries.items()), None)
            if oldest is None or oldest[1].expires > self._clock():
                break
            self.discard(oldest[0])
        while self._cost + cost > self._bound:
            self.discard(next(iter(self._entries)))
        self._entries[key] = _Entry(value, expires, cost)
        self._cost += cost

    def discard(self, key: K) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._cost -= entry.cost

    def items(self) -> Iterator[tuple[K, V]]:
        """Iterate over unexpired entries, least recently used first."""
        now = self._clock()
        return ((key, entry.value) for key, entry in self._entries.items() if entry.expires > now)
