"""Counts calls, errors and durations of the last hour in ten-second intervals, in bounded memory.

Durations are counted in a histogram. Each bucket is 9 % wider than the previous one, so quantiles have an error of
about 5 %. The counts of several workers can be added.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from gateway.bounded_map import BoundedMap
from gateway.json_types import Json, JsonObject
from gateway.rfc3339 import timestamp
from gateway.telemetry.observer import Outcome

SECONDS: Final = 10
INTERVALS: Final = 360
_ERRORS: Final = frozenset({Outcome.TOOL_ERROR, Outcome.PROTOCOL_ERROR})
_PER_OCTAVE: Final = 8
_SHORTEST: Final = 1e-6


class RateInterval(msgspec.Struct):
    calls: int = 0
    errors: int = 0
    durations: dict[int, int] = msgspec.field(default_factory=dict)

    def add(self, other: "RateInterval") -> None:
        self.calls += other.calls
        self.errors += other.errors
        for bucket, count in other.durations.items():
            self.durations[bucket] = self.durations.get(bucket, 0) + count

    def quantile_ms(self, quantile: float) -> float | None:
        """Return a quantile of the durations, such as 0.95, in milliseconds. Return None if there were no calls."""
        wanted = math.ceil(quantile * self.calls)
        for bucket in sorted(self.durations):
            wanted -= self.durations[bucket]
            if wanted <= 0:
                # Return the middle of the bucket, so that the error is at most half a bucket.
                return round(1000 * _SHORTEST * 2 ** ((bucket + 0.5) / _PER_OCTAVE), 3)
        return None


class CallRates:
    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock: Final = clock
        self._intervals: Final[BoundedMap[int, RateInterval]] = BoundedMap(INTERVALS, clock=clock)
        """The counts of each interval, by start time in units of ten seconds."""
        self._newest: Final[BoundedMap[int, tuple[int, int]]] = BoundedMap(SECONDS)
        """The number of calls and errors in each second."""

    def add(self, seconds: float, *, outcome: Outcome) -> None:
        now = int(self._clock())
        found = self._intervals.get(now // SECONDS)
        if found is None:
            self._intervals.put(now // SECONDS, found := RateInterval(), expires=now + SECONDS * INTERVALS)
        is_error = outcome in _ERRORS
        bucket = int(_PER_OCTAVE * math.log2(max(seconds, _SHORTEST) / _SHORTEST))
        found.add(RateInterval(calls=1, errors=int(is_error), durations={bucket: 1}))
        calls, errors = self._newest.get(now) or (0, 0)
        self._newest.put(now, (calls + 1, errors + is_error))

    def last_seconds(self) -> dict[str, Json]:
        since = int(self._clock()) - SECONDS
        recent = [counts for at, counts in self._newest.items() if at > since]
        return {"calls": sum(calls for calls, _ in recent), "errors": sum(errors for _, errors in recent)}

    def as_json(self) -> JsonObject:
        """Return the intervals in the format that `intervals_of` reads in another worker."""
        intervals: JsonObject = msgspec.to_builtins(dict(self._intervals.items()), str_keys=True)
        return intervals

    def shown(self, others: Iterable[Mapping[int, RateInterval]] = ()) -> dict[str, Json]:
        total: dict[int, RateInterval] = {}
        for intervals in (dict(self._intervals.items()), *others):
            for at, each in intervals.items():
                total.setdefault(at, RateInterval()).add(each)
        last = int(self._clock()) // SECONDS
        line = [total.get(at, _NO_CALLS) for at in range(last - INTERVALS + 1, last + 1)]
        return {
            "seconds": SECONDS,
            "end": timestamp((last + 1) * SECONDS),
            "calls": [each.calls for each in line],
            "errors": [each.errors for each in line],
            "p50Ms": [each.quantile_ms(0.5) for each in line],
            "p95Ms": [each.quantile_ms(0.95) for each in line],
        }


_NO_CALLS: Final = RateInterval()


def intervals_of(value: JsonObject) -> dict[int, RateInterval]:
    return msgspec.convert(value, dict[int, RateInterval], str_keys=True)
