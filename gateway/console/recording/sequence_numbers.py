"""Numbers for calls and events. They grow with time, over a restart too, and no two workers have the same.

Why not a plain count: a page that asks for what came after a number must get that from a daemon that was restarted, and
from several workers at once. The numbers are integers that JavaScript reads exactly (below 2**53).
"""

import time
from collections.abc import Callable
from typing import Final

_UNITS_PER_SECOND: Final = 100_000
_WORKERS: Final = 32
"""The last digits tell workers apart. 2**53 is reached in the year 2059."""


class SequenceNumbers:
    """The numbers of one process."""

    def __init__(self, *, worker: int = 0, clock: Callable[[], float] = time.time) -> None:
        self._worker: Final = worker % _WORKERS
        self._clock: Final = clock
        self._last = 0

    def next(self) -> int:
        """Return a number larger than all before."""
        now = int(self._clock() * _UNITS_PER_SECOND)
        self._last = max(self._last + 1, now)
        return self._last * _WORKERS + self._worker
