"""Which refusals are written down: each, unless somebody tries to fill the disk with them."""

import time
from collections.abc import Callable
from typing import Final

MOST_AT_ONCE: Final = 20.0
"""Records of refusals that may follow each other without a pause; then one each second."""


class Denials:
    """Lets through so many of them, and counts the others."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._left = MOST_AT_ONCE
        self._at = clock()
        self._others = 0

    def take(self) -> int | None:
        """How many were left out before this one; None if this one is left out, too."""
        now = self._clock()
        self._left = min(MOST_AT_ONCE, self._left + now - self._at)
        self._at = now
        if self._left < 1:
            self._others += 1
            return None
        self._left -= 1
        others, self._others = self._others, 0
        return others
