"""How many of something there may be at once, in all and of one caller: sessions, streams, connections.

Why a share: without one, a single caller takes all there are, and everybody else finds the door shut.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from gateway.config.server import Shares
from gateway.transports.refusal import RETRY, Refusal

_SMALL: Final = 100
"""So few may be one caller's: to divide them would help nobody."""


class Ration:
    """Counts what is in use."""

    def __init__(self, shares: Shares, *, noun: str, default: int) -> None:
        """Count nothing yet; `noun` is what they are called under `limits`, `default` how many there are unsaid."""
        self.in_all: Final = shares.in_all or default
        self.per_caller: Final = shares.per_caller or max(self.in_all // 2, min(self.in_all, _SMALL))
        self.is_share_unsaid: Final = shares.per_caller is None
        """Whether the file leaves it to us what one caller may have."""
        self.refused = 0
        self._noun: Final = noun
        self._used: Final[Counter[str]] = Counter()
        self._sum = 0

    def __len__(self) -> int:
        return self._sum

    def refusal_of(self, caller: str) -> Refusal | None:
        """Why this caller may have no more; None if it may. Callers whom nothing tells apart have an empty name."""
        if self._sum >= self.in_all:
            reason = f"All {self.in_all} {self._noun} are taken (limits.{self._noun})"
        elif caller and self._used[caller] >= self.per_caller:
            reason = (
                f"{self.per_caller} {self._noun} are yours, and no caller has more (limits.{self._noun}.per_caller)"
            )
        else:
            return None
        self.refused += 1
        return Refusal(status=503, message=reason, headers=RETRY)

    def take(self, caller: str) -> None:
        self._used[caller] += 1
        self._sum += 1

    def give_back(self, caller: str) -> None:
        self._sum -= 1
        self._used[caller] -= 1
        if not self._used[caller]:
            del self._used[caller]

    @contextmanager
    def one(self, caller: str) -> Iterator[None]:
        self.take(caller)
        try:
            yield
        finally:
            self.give_back(caller)
