"""What Prometheus is shown, in the format that it asks for.

What others know is asked of them on the event loop, which is theirs. Writing it all down takes long where there are
thousands of series, so that is done in a thread, beside the calls that go on.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from gateway.telemetry.measure import READ, Measure

Reading = float | Mapping[tuple[str, ...], float]
"""A number; or numbers by the values of the labels."""


class Metrics:
    """Everything that is measured."""

    def __init__(self, sources: Mapping[str, Callable[[], Reading]], *, counted: Sequence[Collector]) -> None:
        """Do nothing yet; `sources` has one for each measure of `READ`, by name."""
        self._read: Final = [(measure, sources[measure.name]) for measure in READ]
        self._counted: Final = (*counted, ProcessCollector(registry=None))

    async def exposition(self, accept: str) -> tuple[bytes, str]:
        """The text of all metrics now, and its media type, which suits an `Accept` field."""
        encode, media_type = choose_encoder(accept)
        readings = [(measure, source()) for measure, source in self._read]
        text = await asyncio.to_thread(encode, _Exposition(readings, self._counted))
        return text, media_type


class _Exposition(Collector):
    """What one scrape shows."""

    def __init__(self, readings: Iterable[tuple[Measure, Reading]], counted: Iterable[Collector]) -> None:
        self._readings = readings
        self._counted = counted

    def collect(self) -> Iterator[Metric]:
        for collector in self._counted:
            yield from collector.collect()
        yield from (_family(measure, reading) for measure, reading in self._readings)


def _family(measure: Measure, reading: Reading) -> Metric:
    make = CounterMetricFamily if measure.kind == "counter" else GaugeMetricFamily
    family = make(measure.name, measure.meaning, labels=measure.labels)
    for labels, value in (reading if isinstance(reading, Mapping) else {(): reading}).items():
        family.add_metric(labels, value)
    return family
