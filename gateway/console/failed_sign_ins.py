"""Limits failed sign-ins of an address: a key that a person chose is not to be found by trying."""

import time
from collections.abc import Callable
from typing import Final

from gateway.access.identity.identity import network_of
from gateway.bounded_map import BoundedMap

MAX_FAILURES: Final = 10
"""Of one address, within `WINDOW_SECONDS`."""
WINDOW_SECONDS: Final = 60.0
_MAX_ADDRESSES: Final = 4096


class FailedSignIns:
    """Counts failures by address; of IPv6, by network."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._failures: Final[BoundedMap[str, tuple[int, float]]] = BoundedMap(_MAX_ADDRESSES, clock=clock)

    def seconds_to_wait(self, address: str) -> int | None:
        """Return how long an address may not try; None if it may."""
        found = self._failures.get(network_of(address))
        if found is None or found[0] < MAX_FAILURES:
            return None
        return max(1, round(found[1] - self._clock()))

    def add(self, address: str) -> None:
        """Note a failure."""
        key = network_of(address)
        count, end = self._failures.get(key) or (0, self._clock() + WINDOW_SECONDS)
        self._failures.put(key, (count + 1, end), expires=end)
