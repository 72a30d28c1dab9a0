"""Limits warnings about a lasting problem to one per hour."""

import time
from typing import Final

_EVERY_SECONDS: Final = 3600.0


class RepeatedWarning:
    def __init__(self) -> None:
        self._next = 0.0

    def is_due(self) -> bool:
        """Return whether to log the warning now. The next warning is due in an hour, or after `reset`."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + _EVERY_SECONDS
        return True

    def reset(self) -> None:
        """Make the next warning due at once. Call this method when the problem is solved."""
        self._next = 0.0
