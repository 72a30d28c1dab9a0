"""How often: rates of one caller and of all, of calls and of questions to a model. In memory, one event loop.

Why two ways to count: a few calls are remembered by their times, which is exact. Many are counted in this window and
the one before, which needs the same few bytes whatever the rate is, and lets through neither a second budget at the
turn of a window nor, as a bucket that refills does, twice the rate in its first window.
"""

import hashlib
import math
import time
from collections import OrderedDict, deque
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
_FEW: Final = 20
"""Calls whose times are remembered."""

Budget = tuple[str, str]


class Rates:
    """What has been spent. It outlives reloads, so that an edit gives nobody a second budget."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._windows: Final[OrderedDict[Budget, _Times | _Window]] = OrderedDict()
        """Those that moved last stand last."""
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
            window.add(cost, now)

    def refund(self, name: str, limit: RateLimit, *, caller: str) -> None:
        """Take back one call that did not come to its end."""
        now = self._clock()
        for rate, who, _ in _rates(limit, caller):
            self._window((name, who), rate, now).take_back()

    def _window(self, budget: Budget, rate: ParsedRate, now: float) -> "_Times | _Window":
        window = self._windows.get(budget)
        if window is None:
            self._forget(now)
            window = self._windows[budget] = _counted(rate, now)
        elif window.seconds != rate.seconds or isinstance(window, _Times) != (rate.amount <= _FEW):
            spent = window.spent(now)  # the file was edited: what was spent stays so
            window = self._windows[budget] = _counted(rate, now)
            window.add(spent, now)
            self._windows.move_to_end(budget)
        elif window.roll(now):
            self._windows.move_to_end(budget)
        return window

    def _forget(self, now: float) -> None:
        """Part with the oldest: two that are over for each that begins, and whatever is too many."""
        for _ in range(2):
            oldest = next(iter(self._windows.values()), None)
            if oldest is None or (len(self._windows) < MOST and not oldest.is_over(now)):
                return
            self._windows.popitem(last=False)


class _Times:
    """The times of the last calls."""

    __slots__ = ("_began", "_times", "seconds")

    def __init__(self, seconds: int, now: float) -> None:
        self.seconds = seconds
        self._began = now
        self._times: deque[float] = deque()

    def roll(self, now: float) -> bool:
        """Forget what is over; whether anything was."""
        before = len(self._times)
        while self._times and self._times[0] + self.seconds <= now:
            self._times.popleft()
        return len(self._times) < before

    def spent(self, now: float) -> int:
        self.roll(now)
        return len(self._times)

    def is_over(self, now: float) -> bool:
        return (self._times[-1] if self._times else self._began) + self.seconds <= now

    def wait(self, rate: ParsedRate, cost: int, now: float) -> float:
        """Seconds until so many more fit; 0 if they do now."""
        too_many = len(self._times) + cost - rate.amount
        if too_many <= 0:
            return 0
        if too_many > len(self._times):
            return self.seconds  # never; whoever asks for less may
        return max(_SOON, self._times[too_many - 1] + self.seconds - now)

    def add(self, cost: int, now: float) -> None:
        self._times.extend([now] * cost)

    def take_back(self) -> None:
        if self._times:
            self._times.pop()


class _Window:
    """How many calls came in this span of time and in the one before it."""

    __slots__ = ("_current", "_number", "_previous", "seconds")

    def __init__(self, seconds: int, now: float) -> None:
        self.seconds = seconds
        self._number = int(now // seconds)
        self._current = 0
        self._previous = 0

    def roll(self, now: float) -> bool:
        """Be the window of now; whether another one began."""
        number = int(now // self.seconds)
        if number == self._number:
            return False
        self._previous = self._current if number == self._number + 1 else 0
        self._number, self._current = number, 0
        return True

    def spent(self, now: float) -> int:
        self.roll(now)
        return math.ceil(self._weight(now))

    def is_over(self, now: float) -> bool:
        return now // self.seconds > self._number + 1

    def wait(self, rate: ParsedRate, cost: int, now: float) -> float:
        """Seconds until so many more fit; 0 if they do now."""
        room = rate.amount - cost
        if room < 0:
            return self.seconds  # never; whoever asks for less may
        if self._weight(now) <= room:
            return 0
        if self._current <= room:  # once enough of the window before has slid out of sight
            begins, share = 1.0, (room - self._current) / self._previous
        else:
            begins, share = 2.0, room / self._current
        return max(_SOON, (begins - share - self._gone(now)) * self.seconds)

    def add(self, cost: int, now: float) -> None:
        del now  # it was rolled there
        self._current += cost

    def take_back(self) -> None:
        if self._current:
            self._current -= 1
        elif self._previous:
            self._previous -= 1

    def _weight(self, now: float) -> float:
        """As if the calls of the window before had come evenly: what of them lies in the time that counts."""
        return self._previous * (1 - self._gone(now)) + self._current

    def _gone(self, now: float) -> float:
        """What part of this window is over."""
        return now / self.seconds - self._number


_Counted = _Times | _Window


def _counted(rate: ParsedRate, now: float) -> _Counted:
    return (_Times if rate.amount <= _FEW else _Window)(rate.seconds, now)


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
