"""Limits the rate of denied requests in the audit log, so that a client without a credential cannot fill the disk."""

import time
from collections.abc import Callable
from typing import Final

MAX_BURST: Final = 20.0
"""Records that may follow each other without a pause; then one each second."""


class DenialLogLimiter:
    """A token bucket of records that counts those it refuses."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._left = MAX_BURST
        self._at = clock()
        self._suppressed = 0

    def allows(self) -> int | None:
        """Return how many records were suppressed since the last one; None if this one is to be suppressed too."""
        now = self._clock()
        self._left = min(MAX_BURST, self._left + now - self._at)
        self._at = now
        if self._left < 1:
            self._suppressed += 1
            return None
        self._left -= 1
        suppressed, self._suppressed = self._suppressed, 0
        return suppressed
