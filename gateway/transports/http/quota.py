"""Limits how many sessions, streams or connections there are at once, in all and of one caller.

Why a limit per caller: without one, a single caller takes all there are, and every other is refused.
"""

import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import msgspec

from gateway.config.models.server import Quota
from gateway.transports.errors import RETRY, HttpError

_REMEMBERED_REFUSALS: Final = 100
_SMALL: Final = 100
"""A total up to this is not divided between callers."""


class Refusal(msgspec.Struct, frozen=True):
    """One caller who got no more."""

    at: float
    """Unix time."""
    caller: str


class ResourceQuota:
    """Counts how many sessions, streams or connections are in use, by caller and in all."""

    def __init__(self, shares: Quota, *, noun: str, default: int) -> None:
        """Count nothing yet; `noun` is what they are called under `limits`, `default` how many there are unsaid."""
        self.in_all: Final = shares.in_all or default
        self.per_caller: Final = shares.per_caller or max(self.in_all // 2, min(self.in_all, _SMALL))
        self.is_share_unsaid: Final = shares.per_caller is None
        """Whether the file leaves it to us what one caller may have."""
        self.refused = 0
        self.refusals: Final[deque[Refusal]] = deque(maxlen=_REMEMBERED_REFUSALS)
        """The newest of them."""
        self._noun: Final = noun
        self._used: Final[Counter[str]] = Counter()
        self._sum = 0

    @property
    def used_by_caller(self) -> Mapping[str, int]:
        return self._used

    def __len__(self) -> int:
        return self._sum

    def refusal_of(self, caller: str) -> HttpError | None:
        """Return why this caller may have no more; None if it may. An empty name stands for all unknown callers."""
        if self._sum >= self.in_all:
            reason = f"All {self.in_all} {self._noun} are taken (limits.{self._noun})"
        elif caller and self._used[caller] >= self.per_caller:
            reason = (
                f"{self.per_caller} {self._noun} are yours, and no caller has more (limits.{self._noun}.per_caller)"
            )
        else:
            return None
        self.refused += 1
        self.refusals.append(Refusal(time.time(), caller))
        return HttpError(status=503, message=reason, headers=RETRY)

    def acquire(self, caller: str) -> None:
        self._used[caller] += 1
        self._sum += 1

    def release(self, caller: str) -> None:
        self._sum -= 1
        self._used[caller] -= 1
        if not self._used[caller]:
            del self._used[caller]

    @contextmanager
    def hold(self, caller: str) -> Iterator[None]:
        self.acquire(caller)
        try:
            yield
        finally:
            self.release(caller)
