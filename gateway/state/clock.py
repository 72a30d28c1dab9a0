"""The clock of what must expire: seconds since the epoch that never go back while the process lives.

It follows the system's clock forward. When that is set back, this one goes on from where it was at the pace of the
monotonic clock, so that what is due in a minute is due in a minute. After a restart a time may lie in the future:
whoever reads one that was stored takes the earlier of it and now.
"""

import time
from collections.abc import Callable
from typing import Final


class SteadyClock:
    def __init__(
        self, *, system: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._system: Final = system
        self._monotonic: Final = monotonic
        self._last = system()
        self._last_monotonic = monotonic()

    def __call__(self) -> float:
        monotonic = self._monotonic()
        # Both: the system's clock may be set back, and the monotonic one stands still while the machine sleeps.
        self._last = max(self._system(), self._last + (monotonic - self._last_monotonic))
        self._last_monotonic = monotonic
        return self._last
