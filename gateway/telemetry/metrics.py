"""Counts calls, and renders all metrics in the Prometheus format that the client accepts.

Sources are read on the event loop. Rendering runs in a thread, because it is slow for thousands of series.
"""

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client import Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from gateway.telemetry.metric_definitions import CALL_SECONDS, CALLS, READ, SECONDS_BUCKETS, MetricDefinition
from gateway.telemetry.observer import CallFacts, CallResult, Outcome

Reading = float | Mapping[tuple[str, ...], float]

_BOUNDS: Final = (*map(floatToGoString, SECONDS_BUCKETS), "+Inf")


_FAMILY_OF_KIND: Final = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
"""The Prometheus classes for metrics with one value per label set. Histograms are not included."""


class MetricsExposition:
    def __init__(
        self, sources: Mapping[str, Callable[[], Reading]], *, counted: Sequence[Callable[[], Iterable[Metric]]]
    ) -> None:
        """Read each metric of `READ` with the function of the same name in `sources`. Raise ValueError for other names.

        The functions in `counted` return further metrics, and run in another thread.
        """
        if other := sources.keys() - {metric.name for metric in READ}:
            raise ValueError(f"sources of metrics without a definition: {', '.join(sorted(other))}")
        self._read: Final = [(metric, _FAMILY_OF_KIND[metric.kind], sources[metric.name]) for metric in READ]
        # Do not use the global registry, where plugins can register the same names.
        self._counted: Final = (*counted, ProcessCollector(registry=None).collect)

    async def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return the text of all metrics and the media type of the text, as requested by an `Accept` header."""
        readings = [(metric, family, source()) for metric, family, source in self._read]

        def families() -> Iterator[Metric]:
            for collect in self._counted:
                yield from collect()
            yield from (_family(metric, family, reading) for metric, family, reading in readings)

        return await asyncio.to_thread(render, families(), accept)


def render(families: Iterator[Metric], accept: str) -> tuple[bytes, str]:
    """Return the text of metrics and its media type. Call this slow function in a thread."""
    try:
        encode, media_type = choose_encoder(accept)
    except TypeError:  # Raised for a malformed version.
        encode, media_type = choose_encoder("")
    return encode(_Families(families)), media_type


class _Families(Collector):
    def __init__(self, families: Iterator[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return self._families


def buckets(within: Iterable[int]) -> list[tuple[str, int]]:
    """Convert counts per bucket to cumulative histogram buckets with their upper bounds."""
    return list(zip(_BOUNDS, accumulate(within), strict=True))


def _family(metric: MetricDefinition, make: type[CounterMetricFamily | GaugeMetricFamily], reading: Reading) -> Metric:
    family = make(metric.name, metric.meaning, labels=metric.labels)
    for labels, value in (reading if isinstance(reading, Mapping) else {(): reading}).items():
        family.add_metric(labels, value)
    return family


UNKNOWN: Final = "<unknown>"
_COMPLETION: Final = "completion"
_COMPLETES: Final = "completion/complete"

Key = tuple[str, str, str]
"""Values of the labels `kind`, `name` and `era`."""


class CallMetrics:
    """Counts calls and durations by `kind`, `name` and `era`.

    All unknown names share one label, and a reload drops the series of removed definitions, which bounds the number of
    series. Only the event loop changes the counters, so plain integers are safe. The thread-safe counters of Prometheus
    would triple the cost.
    """

    def __init__(self) -> None:
        self._series: Final[dict[Key, _Series]] = {}
        self._running: Final[dict[str, _Series]] = {}
        """Series by call id, so that a call is counted in the series where it started, even after a reload."""

    def began(self, call: CallFacts) -> None:
        kind = _COMPLETION if call.method == _COMPLETES else call.kind
        key = (kind, call.name or UNKNOWN, call.era.value)
        if (series := self._series.get(key)) is None:
            series = self._series[key] = _Series(key)
        self._running[call.id] = series

    def ended(self, call: CallFacts, ending: CallResult) -> None:
        self._running.pop(call.id).add(ending.outcome, ending.seconds)

    def in_flight(self) -> Mapping[tuple[str, ...], float]:
        running = Counter(series.key for series in self._running.values())
        return {key: running[key] for key in self._series}

    def keep(self, names: Mapping[str, frozenset[str]]) -> None:
        """Drop the series of all known names that are not in `names`, which maps each kind to its names."""
        for key in list(self._series):
            kind, name, _ = key
            if name != UNKNOWN and name not in names.get(kind, ()):
                del self._series[key]

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of completed calls. In another thread, parts of the last call can be missing."""
        calls = CounterMetricFamily(CALLS.name, CALLS.meaning, labels=CALLS.labels)
        seconds = HistogramMetricFamily(CALL_SECONDS.name, CALL_SECONDS.meaning, labels=CALL_SECONDS.labels)
        # Iterate over copies, because the event loop continues counting.
        for series in list(self._series.values()):
            for outcome, count in list(series.outcomes.items()):
                calls.add_metric((*series.key, outcome.value), count)
            if series.outcomes:
                seconds.add_metric(series.key, buckets(series.within), series.seconds)
        yield calls
        yield seconds


class _Series:
    __slots__ = ("key", "outcomes", "seconds", "within")

    def __init__(self, key: Key) -> None:
        self.key: Final = key
        self.outcomes: Final[Counter[Outcome]] = Counter()
        self.seconds = 0.0
        self.within: Final = [0] * (len(SECONDS_BUCKETS) + 1)
        """The number of calls in each bucket, not cumulative. The last bucket has no upper bound."""

    def add(self, outcome: Outcome, seconds: float) -> None:
        self.outcomes[outcome] += 1
        self.seconds += seconds
        # Buckets include their upper bound (`le` in Prometheus: less or equal).
        self.within[bisect_left(SECONDS_BUCKETS, seconds)] += 1
