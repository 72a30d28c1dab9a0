"""Sequence numbers of calls and events. They increase over time and across restarts, and differ between workers.

Pages use them to request later records, also after a restart and from several workers. JavaScript can represent them
exactly (below 2**53).
"""

import time
from collections.abc import Callable
from typing import Final

_UNITS_PER_SECOND: Final = 100_000
_WORKERS: Final = 32
"""The last digits identify the worker. The numbers reach 2**53 in 2059."""


class SequenceNumbers:
    """The sequence numbers of one process."""

    def __init__(self, *, worker: int = 0, clock: Callable[[], float] = time.time) -> None:
        self._worker: Final = worker % _WORKERS
        self._clock: Final = clock
        self._last = 0

    def next(self) -> int:
        """Return a number larger than all before."""
        now = int(self._clock() * _UNITS_PER_SECOND)
        self._last = max(self._last + 1, now)
        return self._last * _WORKERS + self._worker
