"""Limits the rates of calls and sampling requests, per caller and in total.

A call counts until the period of the rate has passed (a sliding log). No period ever contains more calls than allowed,
while fixed windows and token buckets allow up to twice as many. Rates of few calls are exact. For higher rates, the
times of calls are rounded up to keep the log small, so a caller at the limit waits slightly longer.

With several replicas, the shared store applies the same rules to all replicas together. While the store is unavailable,
each replica uses a separate log.
"""

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NoReturn

from gateway.bounded_map import BoundedMap
from gateway.config.models.quantities import ParsedRate, RateLimit
from gateway.errors import OverLimitError, StoreUnavailableError
from gateway.state.redis_limits import RedisRates

MAX_LOGS: Final = 65_536
"""The maximum number of logs. Then the least recently used log is dropped, so a client with many names evades limits.
"""
RESOLUTION: Final = 20
"""The maximum number of timestamps in a log. Rates of at most this many calls are exact."""

_EVERYBODY: Final = ""
_MAX_NAME_LENGTH: Final = 64
"""The maximum number of characters of a caller in a key. Longer callers are hashed."""
_SOON: Final = 0.001


class RateLimiter:
    """Holds the logs of all limits, also across configuration reloads, so that earlier calls still count."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, shared: RedisRates | None = None) -> None:
        """`shared` counts the calls of all replicas. None for a single process."""
        self._clock: Final = clock
        self._logs: Final[BoundedMap[tuple[str, str], _SlidingLog]] = BoundedMap(MAX_LOGS, clock=clock)
        self.shared: Final = shared
        self.refused = 0

    def __len__(self) -> int:
        return len(self._logs)

    async def acquire(self, name: str, limit: RateLimit, *, caller: str, cost: int = 1) -> None:
        """Count `cost` calls of a caller against the limit that has the configuration key `name`.

        If the limit has a `key` template, `caller` is the rendered key, for example the tenant.

        Raises:
            OverLimitError: A rate does not allow `cost` more calls. Then, no calls are counted.
        """
        rates = _limited_rates(limit, caller)
        if self.shared is None or self.shared.is_unavailable:
            return self._acquire_here(name, rates, cost=cost)
        try:
            refused = await self.shared.take(
                name,
                [key for _, key, _ in rates],
                [(rate.amount, rate.seconds) for rate, _, _ in rates],
                cost=cost,
                resolution=RESOLUTION,
            )
        # Each replica counts by itself while Redis is unavailable.
        except StoreUnavailableError:
            return self._acquire_here(name, rates, cost=cost)
        if refused is not None:
            number, wait = refused
            self._refuse(name, rates[number], wait)
        now = self._clock()
        for rate, key, _ in rates:
            log = self._log((name, key), rate, now)
            log.used(rate, now)  # This call drops expired calls from the log.
            log.add(rate, cost, now)
        return None

    async def refund(self, name: str, limit: RateLimit, *, caller: str) -> None:
        keys = [key for _, key, _ in _limited_rates(limit, caller)]
        for key in keys:
            if (log := self._logs.get((name, key))) is not None:
                log.remove_last()
        if self.shared is not None and not self.shared.is_unavailable:
            try:
                await self.shared.refund(name, keys)
            except StoreUnavailableError:
                return  # At other replicas, the call counts until it expires.

    def uses(self) -> Iterator[tuple[str, str, ParsedRate, int]]:
        """Yield the name of a limit, the caller, the rate and the number of counted calls.

        The caller is empty for all together.
        """
        now = self._clock()
        for (name, caller), log in self._logs.items():
            if log.rate is not None and (used := log.used(log.rate, now)):
                yield name, caller, log.rate, used

    def _acquire_here(self, name: str, rates: "Sequence[_LimitedRate]", *, cost: int) -> None:
        now = self._clock()
        logs = []
        for limited in rates:
            rate, key, _ = limited
            log = self._log((name, key), rate, now)
            if (wait := log.wait(rate, cost, now)) > 0:
                self._refuse(name, limited, wait)
            logs.append((log, rate))
        # Check all rates before counting the calls.
        for log, rate in logs:
            log.add(rate, cost, now)

    def _refuse(self, name: str, limited: "_LimitedRate", wait: float) -> NoReturn:
        self.refused += 1
        rate, _, scope = limited
        message = f"Called too often: at most {rate} {scope} ({name})"
        raise OverLimitError(message, retry_after=math.ceil(wait), limit=name)

    def _log(self, key: tuple[str, str], rate: ParsedRate, now: float) -> "_SlidingLog":
        log = self._logs.get(key) or _SlidingLog()
        if log.renew(rate, now):
            self._logs.put(key, log, expires=log.expires)
        return log


class _SlidingLog:
    """Counts calls by time. The rate is passed with each call, so that a reload takes effect at once."""

    __slots__ = ("_calls", "_used", "expires", "rate")

    def __init__(self) -> None:
        self.expires = -math.inf
        self.rate: ParsedRate | None = None
        self._calls: Final[dict[float, int]] = {}
        self._used = 0

    def renew(self, rate: ParsedRate, now: float) -> bool:
        """Set the rate, which a reload can have changed. Return whether `expires` has changed."""
        self.rate = rate
        if self.expires >= now + 1.5 * rate.seconds:
            return False
        self.expires = now + 2 * rate.seconds
        return True

    def wait(self, rate: ParsedRate, cost: int, now: float) -> float:
        too_many = self.used(rate, now) + cost - rate.amount
        if too_many <= 0:
            return 0
        for at, count in self._calls.items():
            too_many -= count
            if too_many <= 0:
                # Never return 0, which would mean that the calls are allowed now.
                return max(_SOON, at + rate.seconds - now)
        return rate.seconds  # The cost exceeds the amount.

    def used(self, rate: ParsedRate, now: float) -> int:
        """Drop expired calls and return the number of calls that still count."""
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
            # The log does not identify calls, so remove the newest call.
            last = next(reversed(self._calls))
            self._calls[last] -= 1
            self._used -= 1
            if not self._calls[last]:
                del self._calls[last]


_LimitedRate = tuple[ParsedRate, str, str]
"""A rate, the key of its log, and a description of the callers for error messages."""


def _limited_rates(limit: RateLimit, caller: str) -> list[_LimitedRate]:
    rates = []
    whose = "for one caller" if limit.key is None else "for callers with the same `key`"
    if limit.per_caller is not None:
        rates.append((limit.per_caller, bounded(caller), whose))
    if limit.in_all is not None:
        rates.append((limit.in_all, _EVERYBODY, "for all callers together"))
    return rates


def bounded(caller: str) -> str:
    return caller if len(caller) <= _MAX_NAME_LENGTH else hashlib.sha256(caller.encode()).hexdigest()
