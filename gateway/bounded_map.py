"""A mapping that forgets: what has expired, and beyond a bound what was used longest ago.

For one thread. An expired entry is never returned, and its memory is given back as others are added.
"""

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
    """Entries of at most `bound` together: a number of entries, or of bytes if each is put with its size as cost."""

    def __init__(self, bound: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._bound: Final = bound
        self._clock: Final = clock
        self._entries: Final[OrderedDict[K, _Entry[V]]] = OrderedDict()
        """Used longest ago first."""
        self._cost = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Return the value, and count that as a use."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.expires <= self._clock():
            self.discard(key)
            return None
        self._entries.move_to_end(key)
        return entry.value

    def put(self, key: K, value: V, *, expires: float = math.inf, cost: int = 1) -> None:
        """Keep a value until `expires` (the clock's), unless it costs more than the bound by itself.

        Two expired entries at the most go for each that comes, so that no call pays for the sweep of a large map.
        """
        # First, so that the cost of the old value pushes no other entry out.
        self.discard(key)
        if cost > self._bound:
            return
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
        """Iterate over the entries that have not expired, the one used longest ago first."""
        now = self._clock()
        return ((key, entry.value) for key, entry in self._entries.items() if entry.expires > now)
