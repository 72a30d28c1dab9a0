"""Limits how often over all replicas, by the same rules as `RateLimiter`, which counts in this process alone.

While the store is away, each replica counts by itself: it has counted its own calls all along, so that none is free.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from gateway.access.call_limits.rate_limiter import RESOLUTION, RateLimiter, RateUse, limited_rates, refusal
from gateway.config.models.rates import RateLimit
from gateway.errors import StoreAwayError


class SharedRates(Protocol):
    """The logs that all replicas share."""

    @property
    def is_away(self) -> bool: ...

    async def take(
        self, name: str, callers: Sequence[str], rates: Sequence[tuple[int, int]], *, cost: int, resolution: int
    ) -> tuple[int, float] | None:
        """Count calls against each rate, an amount and seconds, of a caller; or return which refuses, and until when.

        Amounts up to `resolution` are exact, and no log has more times.

        Raises:
            StoreAwayError: whether they were counted is not known.
        """

    async def refund(self, name: str, callers: Sequence[str]) -> None:
        """Take back one call; see `take`."""


class SharedRateLimiter:
    """Counts over all replicas where there is a store, and else in this process."""

    def __init__(self, own: RateLimiter) -> None:
        self._own: Final = own
        self.shared: SharedRates | None = None
        """None: there is one process."""

    @property
    def refused(self) -> int:
        return self._own.refused

    def uses(self) -> Iterator[RateUse]:
        """The use of each rate by each caller, of what this process has let through."""
        return self._own.uses()

    async def acquire(
        self, name: str, limit: RateLimit, *, caller: str, cost: int = 1, saying: str = "Called too often"
    ) -> None:
        """Count calls as `RateLimiter.acquire` does.

        Raises:
            OverLimitError: they are more than a rate allows now; none is counted.
        """
        if self.shared is None or self.shared.is_away:
            return self._own.acquire(name, limit, caller=caller, cost=cost, saying=saying)
        rates = limited_rates(limit, caller)
        try:
            refused = await self.shared.take(
                name,
                [key for _, key, _ in rates],
                [(rate.amount, rate.seconds) for rate, _, _ in rates],
                cost=cost,
                resolution=RESOLUTION,
            )
        except StoreAwayError:
            return self._own.acquire(name, limit, caller=caller, cost=cost, saying=saying)
        if refused is None:
            return self._own.count(name, limit, caller=caller, cost=cost)
        number, wait = refused
        self._own.refused += 1
        rate, _, scope = rates[number]
        raise refusal(name, rate, scope, saying=saying, retry_after=math.ceil(wait))

    async def refund(self, name: str, limit: RateLimit, *, caller: str) -> None:
        """Take back one call that did not come to its end."""
        self._own.refund(name, limit, caller=caller)
        if self.shared is not None and not self.shared.is_away:
            try:
                await self.shared.refund(name, [key for _, key, _ in limited_rates(limit, caller)])
            except StoreAwayError:
                return  # it counts at the others until its time has passed
