"""Limits how often: calls of one caller and of all, and questions to a client's model. For one event loop.

A sliding log: each call counts for as long as the rate says, from when it was made. No stretch of that length ever has
more calls than the rate allows, where fixed windows and token buckets let through up to twice as many. For small
amounts the log is exact; for larger ones times are rounded up, so that it stays as small and a caller who uses a rate
up waits a little longer.

Where there are replicas, the store counts for all of them, by the same rules. While it is away each replica counts by
itself: it has counted its own calls all along, so that none is free.
"""

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NoReturn

import msgspec

from gateway.bounded_map import BoundedMap
from gateway.config.models.quantities import ParsedRate, RateLimit
from gateway.errors import OverLimitError, StoreAwayError
from gateway.state.redis_rates import RedisRates

MAX_LOGS: Final = 65_536
"""Logs that are kept; beyond that the one used longest ago goes. A caller with so many names has as many budgets."""
RESOLUTION: Final = 20
"""Times in one log: amounts up to this are exact, and times of larger ones are rounded to that part of the rate's."""

_EVERYBODY: Final = ""
_MAX_NAME_LENGTH: Final = 64
"""Characters; of a longer caller a digest is kept."""
_SOON: Final = 0.001


class RateUse(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of one caller that count against a rate."""

    name: str
    """The limit's, in the file."""
    caller: str
    """Empty: all callers together."""
    rate: ParsedRate
    used: int


class RateLimiter:
    """The logs of all limits. They outlive reloads, so that an edit of the file gives nobody a second budget."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, shared: RedisRates | None = None) -> None:
        """Count nothing yet. `shared`: the logs that all replicas share; None: there is one process."""
        self._clock: Final = clock
        self._logs: Final[BoundedMap[tuple[str, str], _SlidingLog]] = BoundedMap(MAX_LOGS, clock=clock)
        """By limit and caller."""
        self.shared: Final = shared
        self.refused = 0

    def __len__(self) -> int:
        return len(self._logs)

    async def acquire(
        self, name: str, limit: RateLimit, *, caller: str, cost: int = 1, saying: str = "Called too often"
    ) -> None:
        """Count `cost` calls of a caller against the limit that the file has under `name`.

        Raises:
            OverLimitError: they are more than a rate allows now; none is counted.
        """
        rates = _limited_rates(limit, caller)
        if self.shared is None or self.shared.is_away:
            return self._acquire_here(name, rates, cost=cost, saying=saying)
        try:
            refused = await self.shared.take(
                name,
                [key for _, key, _ in rates],
                [(rate.amount, rate.seconds) for rate, _, _ in rates],
                cost=cost,
                resolution=RESOLUTION,
            )
        # Each replica counts by itself meanwhile: no call is refused because Redis is away.
        except StoreAwayError:
            return self._acquire_here(name, rates, cost=cost, saying=saying)
        if refused is not None:
            number, wait = refused
            self._refuse(name, rates[number], wait, saying=saying)
        now = self._clock()
        for rate, key, _ in rates:
            log = self._log((name, key), rate, now)
            log.used(rate, now)  # forgets what counts no more
            log.add(rate, cost, now)
        return None

    async def refund(self, name: str, limit: RateLimit, *, caller: str) -> None:
        """Take back one call that did not come to its end."""
        keys = [key for _, key, _ in _limited_rates(limit, caller)]
        for key in keys:
            if (log := self._logs.get((name, key))) is not None:
                log.remove_last()
        if self.shared is not None and not self.shared.is_away:
            try:
                await self.shared.refund(name, keys)
            except StoreAwayError:
                return  # it counts at the others until its time has passed

    def uses(self) -> Iterator[RateUse]:
        """The use of each rate by each caller that counts now, of what this process has let through."""
        now = self._clock()
        for (name, caller), log in self._logs.items():
            if log.rate is not None and (used := log.used(log.rate, now)):
                yield RateUse(name=name, caller=caller, rate=log.rate, used=used)

    def _acquire_here(self, name: str, rates: "Sequence[_LimitedRate]", *, cost: int, saying: str) -> None:
        now = self._clock()
        logs = []
        for limited in rates:
            rate, key, _ = limited
            log = self._log((name, key), rate, now)
            if (wait := log.wait(rate, cost, now)) > 0:
                self._refuse(name, limited, wait, saying=saying)
            logs.append((log, rate))
        # All rates are asked before any is charged: a call that one refuses counts against none.
        for log, rate in logs:
            log.add(rate, cost, now)

    def _refuse(self, name: str, limited: "_LimitedRate", wait: float, *, saying: str) -> NoReturn:
        self.refused += 1
        rate, _, scope = limited
        message = f"{saying}: {rate} at the most {scope} ({name})"
        raise OverLimitError(message, retry_after=math.ceil(wait), limit=name)

    def _log(self, key: tuple[str, str], rate: ParsedRate, now: float) -> "_SlidingLog":
        log = self._logs.get(key) or _SlidingLog()
        if log.renew(rate, now):
            self._logs.put(key, log, expires=log.expires)
        return log


class _SlidingLog:
    """The calls that count, by the time from which they do. An edited rate needs no new log: each call brings it."""

    __slots__ = ("_calls", "_used", "expires", "rate")

    def __init__(self) -> None:
        self.expires = -math.inf
        self.rate: ParsedRate | None = None
        """The one that it was looked at for last."""
        self._calls: Final[dict[float, int]] = {}
        self._used = 0

    def renew(self, rate: ParsedRate, now: float) -> bool:
        """Use this rate from now on. Return whether `expires` has changed."""
        self.rate = rate
        if self.expires >= now + 1.5 * rate.seconds:
            return False
        self.expires = now + 2 * rate.seconds
        return True

    def wait(self, rate: ParsedRate, cost: int, now: float) -> float:
        """Seconds until so many more fit; 0 if they do now."""
        too_many = self.used(rate, now) + cost - rate.amount
        if too_many <= 0:
            return 0
        for at, count in self._calls.items():
            too_many -= count
            if too_many <= 0:
                # Never 0, to which rounding might lead: that would say that they fit now.
                return max(_SOON, at + rate.seconds - now)
        return rate.seconds  # never: the cost is more than the amount

    def used(self, rate: ParsedRate, now: float) -> int:
        """The calls that count now."""
        while self._calls and (oldest := next(iter(self._calls))) + rate.seconds <= now:
            self._used -= self._calls.pop(oldest)
        return self._used

    def add(self, rate: ParsedRate, cost: int, now: float) -> None:
        step = rate.seconds / RESOLUTION
        at = now if rate.amount <= RESOLUTION else math.ceil(now / step) * step
        self._calls[at] = self._calls.get(at, 0) + cost
        self._used += cost

    def remove_last(self) -> None:
        if self._calls:
            # The log has counts by time, not the calls themselves: the newest is closest to the one to take back.
            last = next(reversed(self._calls))
            self._calls[last] -= 1
            self._used -= 1
            if not self._calls[last]:
                del self._calls[last]


_LimitedRate = tuple[ParsedRate, str, str]
"""A rate of a limit, the key that its calls are counted by, and whose calls they are in words."""


def _limited_rates(limit: RateLimit, caller: str) -> list[_LimitedRate]:
    rates = []
    if limit.per_caller is not None:
        rates.append((limit.per_caller, bounded(caller), "for one caller"))
    if limit.in_all is not None:
        rates.append((limit.in_all, _EVERYBODY, "for all callers together"))
    return rates


def bounded(caller: str) -> str:
    """The name of a caller, or a digest of a long one."""
    return caller if len(caller) <= _MAX_NAME_LENGTH else hashlib.sha256(caller.encode()).hexdigest()
