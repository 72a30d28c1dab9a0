"""Limits how often: calls of one caller and of all, and questions to a client's model. In memory, for one event loop.

A sliding log: each call counts for as long as the rate says, from when it was made. No stretch of that length ever has
more calls than the rate allows, where fixed windows and token buckets let through up to twice as many. For small
amounts the log is exact; for larger ones times are rounded up, so that it stays as small and a caller who uses a rate
up waits a little longer.
"""

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from gateway.bounded_map import BoundedMap
from gateway.config.models.rates import ParsedRate, RateLimit
from gateway.errors import OverLimitError

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

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._logs: Final[BoundedMap[tuple[str, str], _SlidingLog]] = BoundedMap(MAX_LOGS, clock=clock)
        """By limit and caller."""
        self.refused = 0

    def __len__(self) -> int:
        return len(self._logs)

    def acquire(
        self, name: str, limit: RateLimit, *, caller: str, cost: int = 1, saying: str = "Called too often"
    ) -> None:
        """Count `cost` calls of a caller against the limit that the file has under `name`.

        Raises:
            OverLimitError: they are more than a rate allows now; none is counted.
        """
        now = self._clock()
        logs = []
        for rate, key, scope in limited_rates(limit, caller):
            log = self._log((name, key), rate, now)
            wait = log.wait(rate, cost, now)
            if wait > 0:
                self.refused += 1
                raise refusal(name, rate, scope, saying=saying, retry_after=math.ceil(wait))
            logs.append((log, rate))
        for log, rate in logs:
            log.add(rate, cost, now)

    def count(self, name: str, limit: RateLimit, *, caller: str, cost: int) -> None:
        """Count calls that somebody else has allowed."""
        now = self._clock()
        for rate, key, _ in limited_rates(limit, caller):
            log = self._log((name, key), rate, now)
            log.wait(rate, cost, now)  # forgets what counts no more
            log.add(rate, cost, now)

    def refund(self, name: str, limit: RateLimit, *, caller: str) -> None:
        """Take back one call that did not come to its end."""
        for _, key, _ in limited_rates(limit, caller):
            if (log := self._logs.get((name, key))) is not None:
                log.remove_last()

    def uses(self) -> Iterator[RateUse]:
        """The use of each rate by each caller that counts now."""
        now = self._clock()
        for (name, caller), log in self._logs.items():
            if log.rate is not None and (used := log.used(log.rate, now)):
                yield RateUse(name=name, caller=caller, rate=log.rate, used=used)

    def _log(self, key: tuple[str, str], rate: ParsedRate, now: float) -> "_SlidingLog":
        log = self._logs.get(key) or _SlidingLog()
        log.rate = rate
        if log.expires < now + 1.5 * rate.seconds:  # put again once in a while: times in it may lie ahead of now
            log.expires = now + 2 * rate.seconds
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

    def wait(self, rate: ParsedRate, cost: int, now: float) -> float:
        """Seconds until so many more fit; 0 if they do now."""
        too_many = self.used(rate, now) + cost - rate.amount
        if too_many <= 0:
            return 0
        for at, count in self._calls.items():
            too_many -= count
            if too_many <= 0:
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
            last = next(reversed(self._calls))
            self._calls[last] -= 1
            self._used -= 1
            if not self._calls[last]:
                del self._calls[last]


def limited_rates(limit: RateLimit, caller: str) -> list[tuple[ParsedRate, str, str]]:
    """The rates of a limit, each with the key that its calls are counted by, and with whose calls they are in words."""
    rates = []
    if limit.per_caller is not None:
        rates.append((limit.per_caller, bounded(caller), "for one caller"))
    if limit.in_all is not None:
        rates.append((limit.in_all, _EVERYBODY, "for all callers together"))
    return rates


def refusal(name: str, rate: ParsedRate, scope: str, *, saying: str, retry_after: int) -> OverLimitError:
    """The error of a call that is more than a rate allows."""
    message = f"{saying}: {rate} at the most {scope} ({name})"
    return OverLimitError(message, retry_after=retry_after, limit=name)


def bounded(caller: str) -> str:
    """The name of a caller, or a digest of a long one."""
    return caller if len(caller) <= _MAX_NAME_LENGTH else hashlib.sha256(caller.encode()).hexdigest()
