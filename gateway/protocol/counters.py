"""Counts the notifications that were sent to clients, and those that were dropped because no client read them."""

from collections import Counter
from typing import Final


class NotificationCounters:
    """Counts by method."""

    __slots__ = ("dropped", "sent")

    def __init__(self) -> None:
        self.sent: Final[Counter[str]] = Counter()
        self.dropped: Final[Counter[str]] = Counter()
