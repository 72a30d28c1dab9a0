"""Counts calls and their times, by what was called and in which era. An observer of calls.

Labels are the catalog's names: what it does not know counts under one label, and with a definition that a reload
removes go its series, lest they add up. Counting is plain additions, since only the event loop counts: the library's
own counters, which any thread may use, cost a call three times as much. It is asked for the format alone.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from gateway.protocol.calls import Call, EndedAs, Ending
from gateway.telemetry.measure import CALL_SECONDS, CALLS

UNKNOWN: Final = "<unknown>"
"""The name of all that the catalog has no name for."""
COMPLETION: Final = "completion"
_COMPLETES: Final = "completion/complete"
_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds: from a fixed answer to a deployment."""
_BOUNDS: Final = (*map(floatToGoString, _BUCKETS), "+Inf")

Key = tuple[str, str, str]
"""Kind, name and era."""


class CallMetrics(Collector):
    """The metrics of calls."""

    def __init__(self) -> None:
        self._series: Final[dict[Key, _Series]] = {}
        self._found: Final[dict[tuple[str, str, str | None, str], _Series]] = {}
        """The same by what a call says of itself, its revision included: saves making a key of labels each time."""
        self._running: Final[dict[str, _Series]] = {}
        """By call id: what began under a name ends under it, whatever a reload has done meanwhile."""

    def began(self, call: Call) -> None:
        said = (call.method, call.kind, call.name, call.request.revision)
        self._running[call.id] = self._found.get(said) or self._find(said, call)

    def ended(self, call: Call, ending: Ending) -> None:
        series = self._running.pop(call.id)
        series.outcomes[ending.outcome] += 1
        series.seconds += ending.seconds
        series.within[bisect_left(_BUCKETS, ending.seconds)] += 1

    def in_flight(self) -> Mapping[tuple[str, ...], float]:
        """How many calls run now, of all that was ever called and is there still."""
        running = Counter(series.key for series in self._running.values())
        return {key: running[key] for key in self._series}

    def keep(self, names: Mapping[str, frozenset[str]]) -> None:
        """Forget the series of all that is not among `names`, which are by kind."""
        for key in list(self._series):
            kind, name, _ = key
            if name != UNKNOWN and name not in names.get(kind, ()):
                del self._series[key]
        self._found.clear()

    def collect(self) -> Iterator[Metric]:
        """What has ended. May be asked for in another thread, where a call that ends meanwhile may be seen in part."""
        calls = CounterMetricFamily(CALLS.name, CALLS.meaning, labels=CALLS.labels)
        seconds = HistogramMetricFamily(CALL_SECONDS.name, CALL_SECONDS.meaning, labels=CALL_SECONDS.labels)
        for key, series in list(self._series.items()):
            for outcome, count in list(series.outcomes.items()):
                calls.add_metric((*key, outcome.value), count)
            if series.outcomes:
                buckets = list(zip(_BOUNDS, accumulate(series.within), strict=True))
                seconds.add_metric(key, buckets, series.seconds)
        yield calls
        yield seconds

    def _find(self, said: tuple[str, str, str | None, str], call: Call) -> "_Series":
        kind = COMPLETION if call.method == _COMPLETES else call.kind
        key = (kind, call.name or UNKNOWN, call.request.era.value)
        series = self._found[said] = self._series.setdefault(key, _Series(key))
        return series


class _Series:
    """What has ended of one key's calls."""

    __slots__ = ("key", "outcomes", "seconds", "within")

    def __init__(self, key: Key) -> None:
        self.key: Final = key
        self.outcomes: Final[Counter[EndedAs]] = Counter()
        self.seconds = 0.0
        """Of all together."""
        self.within: Final = [0] * len(_BOUNDS)
        """How many took no longer than each bound, and longer than the one before."""
