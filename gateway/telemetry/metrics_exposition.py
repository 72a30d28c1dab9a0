"""Renders all metrics in the Prometheus format that the client accepts.

Sources are read on the event loop. Rendering runs in a thread, because it is slow for thousands of series.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client import Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from gateway.telemetry.call_metrics import CallMetrics
from gateway.telemetry.metric_definitions import CALL_SECONDS, CALLS, READ, SECONDS_BUCKETS, MetricDefinition

Reading = float | Mapping[tuple[str, ...], float]

_BOUNDS: Final = (*map(floatToGoString, SECONDS_BUCKETS), "+Inf")


class MetricsExposition:
    def __init__(self, sources: Mapping[str, Callable[[], Reading]], *, counted: Sequence[Collector]) -> None:
        """Read each metric of `READ` from the function under its name in `sources`. Unknown names raise ValueError."""
        if other := sources.keys() - {metric.name for metric in READ}:
            raise ValueError(f"sources of metrics without a definition: {', '.join(sorted(other))}")
        self._read: Final = [(metric, sources[metric.name]) for metric in READ]
        # Do not use the global registry, where plugins can register the same names.
        self._counted: Final = (*counted, ProcessCollector(registry=None))

    async def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return the text of all metrics and the media type of the text, as requested by an `Accept` header."""
        encode, media_type = encoder_for(accept)
        readings = [(metric, source()) for metric, source in self._read]
        text = await asyncio.to_thread(encode, _Exposition(readings, self._counted))
        return text, media_type


def encoder_for(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    try:
        return choose_encoder(accept)
    except TypeError:  # Raised for a malformed version.
        return choose_encoder("")


class _Exposition(Collector):
    def __init__(self, readings: Iterable[tuple[MetricDefinition, Reading]], counted: Iterable[Collector]) -> None:
        self._readings = readings
        self._counted = counted

    def collect(self) -> Iterator[Metric]:
        for collector in self._counted:
            yield from collector.collect()
        yield from (_family(metric, reading) for metric, reading in self._readings)


class CallCollector(Collector):
    """Collects the metrics of completed calls. `collect` runs outside the event loop's thread."""

    def __init__(self, calls: CallMetrics) -> None:
        self._calls: Final = calls

    def collect(self) -> Iterator[Metric]:
        calls = CounterMetricFamily(CALLS.name, CALLS.meaning, labels=CALLS.labels)
        seconds = HistogramMetricFamily(CALL_SECONDS.name, CALL_SECONDS.meaning, labels=CALL_SECONDS.labels)
        for series in self._calls.series():
            # Iterate over a copy, because the event loop continues counting.
            for outcome, count in list(series.outcomes.items()):
                calls.add_metric((*series.key, outcome.value), count)
            if series.outcomes:
                seconds.add_metric(series.key, buckets(series.within), series.seconds)
        yield calls
        yield seconds


def buckets(within: Iterable[int]) -> list[tuple[str, int]]:
    """Convert counts per bucket to cumulative histogram buckets with their upper bounds."""
    return list(zip(_BOUNDS, accumulate(within), strict=True))


def _family(metric: MetricDefinition, reading: Reading) -> Metric:
    make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = make(metric.name, metric.meaning, labels=metric.labels)
    for labels, value in (reading if isinstance(reading, Mapping) else {(): reading}).items():
        family.add_metric(labels, value)
    return family
