"""How often: rates of one caller and of all, of calls and of questions to a model. In memory, one event loop.

Why a sliding window of two counters: it needs the same few bytes for every caller, whatever the rate, and lets through
neither a second budget at the turn of a window nor, as a bucket that refills does, twice the rate in its first window.
"""

import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from gateway.config.rates import ParsedRate, RateLimit
from gateway.errors import OverLimitError

MOST: Final = 65_536
"""Counts that are kept. Beyond that the oldest is forgotten: whoever has so many names has as many budgets."""

_EVERYBODY: Final = ""
_LONGEST_NAME: Final = 64
"""Characters; of a longer caller a digest is kept."""

_SOON: Final = 0.001

Budget = tuple[str, str]


class Rates:
    """What has been spent. It outlives reloads, so that an edit gives nobody a second budget."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._windows: Final[OrderedDict[Budget, _Window]] = OrderedDict()
        """Those that began last stand last."""
        self.refused = 0
        """How often the answer was no."""

    def __len__(self) -> int:
        return len(self._windows)

    def spend(
        self, name: str, limit: RateLimit, *, caller: str, cost: int = 1, saying: str = "Called too often"
    ) -> None:
        """Count `cost` calls of a caller against the limit that the file has under `name`.

        Raises:
            OverLimitError: they are more than a rate allows now; none is counted.
        """
        now = self._clock()
        windows = []
        for rate, who, whose in _rates(limit, caller):
            window = self._window((name, who), rate, now)
            wait = window.wait(rate, cost, now)
            if wait > 0:
                self.refused += 1
                raise OverLimitError(f"{saying}: {rate} at the most {whose}({name})", retry_after=math.ceil(wait))
            windows.append(window)
        for window in windows:
            window.current += cost

    def refund(self, name: str, limit: RateLimit, *, caller: str) -> None:
        """Take back one call that did not come to its end."""
        now = self._clock()
        for rate, who, _ in _rates(limit, caller):
            self._window((name, who), rate, now).take_back()

    def _window(self, budget: Budget, rate: ParsedRate, now: float) -> "_Window":
        window = self._windows.get(budget)
        if window is None:
            window = self._windows[budget] = _Window(rate, now)
            self._forget(now)
        elif window.roll(rate, now):
            self._windows.move_to_end(budget)
        return window

    def _forget(self, now: float) -> None:
        """Part with the oldest: two that are over for each that begins, and whatever is too many."""
        for _ in range(2):
            oldest = next(iter(self._windows.values()))
            if len(self._windows) <= MOST and not oldest.is_over(now):
                return
            self._windows.popitem(last=False)


class _Window:
    """Calls in this span of time and in the one before it."""

    __slots__ = ("current", "number", "previous", "seconds")

    def __init__(self, rate: ParsedRate, now: float) -> None:
        self.seconds = rate.seconds
        self.number = int(now // rate.seconds)
        self.current = 0
        self.previous = 0

    def roll(self, rate: ParsedRate, now: float) -> bool:
        """Be the window of now, in the length that the file now has; whether another one began."""
        number = int(now // self.seconds)
        is_new = number != self.number
        if is_new:
            self.previous = self.current if number == self.number + 1 else 0
            self.number, self.current = number, 0
        if rate.seconds != self.seconds:  # the file was edited: what was spent stays so
            self.current, self.previous = math.ceil(self._weight(now)), 0
            self.seconds, self.number = rate.seconds, int(now // rate.seconds)
        return is_new

    def is_over(self, now: float) -> bool:
        return now // self.seconds > self.number + 1

    def wait(self, rate: ParsedRate, cost: int, now: float) -> float:
        """Seconds until so many more fit; 0 if they do now."""
        room = rate.amount - cost
        if room < 0:
            return self.seconds  # never; whoever asks for less may
        if self._weight(now) <= room:
            return 0
        if self.current <= room:  # once enough of the window before has slid out of sight
            begins, share = 1.0, (room - self.current) / self.previous
        else:
            begins, share = 2.0, room / self.current
        return max(_SOON, (begins - share - self._gone(now)) * self.seconds)

    def take_back(self) -> None:
        if self.current:
            self.current -= 1
        elif self.previous:
            self.previous -= 1

    def _weight(self, now: float) -> float:
        """As if the calls of the window before had come evenly: what of them lies in the time that counts."""
        return self.previous * (1 - self._gone(now)) + self.current

    def _gone(self, now: float) -> float:
        """What part of this window is over."""
        return now / self.seconds - self.number


def _rates(limit: RateLimit, caller: str) -> list[tuple[ParsedRate, str, str]]:
    """Each rate, whose calls are counted, and how that is said."""
    rates = []
    if limit.per_caller is not None:
        rates.append((limit.per_caller, _short(caller), "for one caller "))
    if limit.in_all is not None:
        rates.append((limit.in_all, _EVERYBODY, "for all callers together "))
    return rates


def _short(caller: str) -> str:
    return caller if len(caller) <= _LONGEST_NAME else hashlib.sha256(caller.encode()).hexdigest()
