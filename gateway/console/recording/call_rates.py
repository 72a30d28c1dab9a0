"""Counts the calls of the last hour in bins of ten seconds, with errors and how long calls took. Memory is bounded.

Durations are counted in buckets an eighth of an octave wide, so that quantiles are right to about five per cent, and
those of several workers can be added up.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from gateway.console.recording.moments import moment
from gateway.json_types import Json, JsonObject
from gateway.telemetry.observer import Outcome

SECONDS: Final = 10
"""Of one bin."""
BINS: Final = 360
_ERRORS: Final = frozenset({Outcome.TOOL_ERROR, Outcome.PROTOCOL_ERROR})
_PER_OCTAVE: Final = 8
_SHORTEST: Final = 1e-6


class Bin(msgspec.Struct):
    """The calls that ended within ten seconds."""

    calls: int = 0
    errors: int = 0
    durations: dict[int, int] = msgspec.field(default_factory=dict)
    """Calls by bucket."""

    def add(self, other: "Bin") -> None:
        self.calls += other.calls
        self.errors += other.errors
        for bucket, count in other.durations.items():
            self.durations[bucket] = self.durations.get(bucket, 0) + count

    def quantile_ms(self, share: float) -> float | None:
        """Return the duration within which this share of calls ended; None if there were none."""
        wanted = math.ceil(share * self.calls)
        for bucket in sorted(self.durations):
            wanted -= self.durations[bucket]
            if wanted <= 0:
                return round(1000 * _SHORTEST * 2 ** ((bucket + 0.5) / _PER_OCTAVE), 3)
        return None


class CallRates:
    """The bins of the last hour."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock: Final = clock
        self._bins: Final[dict[int, Bin]] = {}
        """By the time at which each began, in tens of seconds, the oldest first."""
        self._newest: Final[dict[int, tuple[int, int]]] = {}
        """Calls and errors of the last seconds."""

    def add(self, seconds: float, *, outcome: Outcome) -> None:
        """Count a call that has just ended."""
        now = int(self._clock())
        found = self._bins.get(now // SECONDS)
        if found is None:
            found = self._bins[now // SECONDS] = Bin()
            _forget(self._bins, before=now // SECONDS - BINS)
        is_error = outcome in _ERRORS
        found.calls += 1
        found.errors += is_error
        bucket = int(_PER_OCTAVE * math.log2(max(seconds, _SHORTEST) / _SHORTEST))
        found.durations[bucket] = found.durations.get(bucket, 0) + 1
        calls, errors = self._newest.get(now, (0, 0))
        self._newest[now] = calls + 1, errors + is_error
        if len(self._newest) > SECONDS + 1:
            _forget(self._newest, before=now - SECONDS)

    def last_seconds(self) -> dict[str, Json]:
        """Return the calls and errors of the last ten seconds."""
        since = int(self._clock()) - SECONDS
        recent = [counts for at, counts in self._newest.items() if at > since]
        return {"calls": sum(calls for calls, _ in recent), "errors": sum(errors for _, errors in recent)}

    def as_json(self) -> JsonObject:
        """Return the bins for another worker."""
        return {
            str(at): {"calls": each.calls, "errors": each.errors, "durations": list(each.durations.items())}
            for at, each in self._bins.items()
        }

    @property
    def bins(self) -> Mapping[int, Bin]:
        return self._bins

    def shown(self, others: Iterable[Mapping[int, Bin]] = ()) -> dict[str, Json]:
        """Return `rates` of the API, with the bins of other workers added."""
        total: dict[int, Bin] = {}
        for bins in (self._bins, *others):
            for at, each in bins.items():
                total.setdefault(at, Bin()).add(each)
        last = int(self._clock()) // SECONDS
        line = [total.get(at, _EMPTY) for at in range(last - BINS + 1, last + 1)]
        return {
            "seconds": SECONDS,
            "end": moment((last + 1) * SECONDS),
            "calls": [each.calls for each in line],
            "errors": [each.errors for each in line],
            "p50Ms": [each.quantile_ms(0.5) for each in line],
            "p95Ms": [each.quantile_ms(0.95) for each in line],
        }


_EMPTY: Final = Bin()


def bins_of(value: JsonObject) -> dict[int, Bin]:
    """Return the bins that another worker has."""
    return {
        int(at): Bin(calls=each["calls"], errors=each["errors"], durations=dict(map(tuple, each["durations"])))
        for at, each in value.items()
    }


def _forget(counts: dict[int, Bin] | dict[int, tuple[int, int]], *, before: int) -> None:
    for at in [each for each in counts if each <= before]:
        del counts[at]
