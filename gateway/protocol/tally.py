"""How many notifications clients were sent, and how many were dropped because nobody reads them."""

from collections import Counter
from typing import Final


class Tally:
    """Counts by method."""

    __slots__ = ("dropped", "sent")

    def __init__(self) -> None:
        self.sent: Final[Counter[str]] = Counter()
        self.dropped: Final[Counter[str]] = Counter()
