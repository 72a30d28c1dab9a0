"""Adds up the metrics of workers, as the table of metrics says for each: what all have in common is not summed."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from gateway.telemetry.metric_definitions import METRIC_DEFINITIONS

_COMBINE: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {"sum": sum, "max": max, "min": min}
_BY_NAME: Final = {each.name: _COMBINE[each.of_workers] for each in METRIC_DEFINITIONS}


def summed(texts: Sequence[str], accept: str) -> tuple[bytes, str]:
    """Return the metrics of several texts as one, and its media type, which suits an `Accept` field. May take long."""
    encode, media_type = choose_encoder(accept)
    return encode(_Summed(texts)), media_type


class _Summed(Collector):
    """The metrics of one scrape."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = texts

    def collect(self) -> Iterator[Metric]:
        families: dict[str, list[Metric]] = {}
        for text in self._texts:
            for family in text_string_to_metric_families(text):
                families.setdefault(family.name, []).append(family)
        yield from map(_one, families.values())


def _one(families: Sequence[Metric]) -> Metric:
    first = families[0]
    # The parser takes the suffix off counters, as OpenMetrics has them.
    combine = _BY_NAME.get(first.name) or _BY_NAME.get(f"{first.name}_total") or sum
    values: dict[tuple[str, tuple[tuple[str, str], ...]], list[float]] = {}
    for sample in (sample for family in families for sample in family.samples):
        values.setdefault((sample.name, tuple(sample.labels.items())), []).append(sample.value)
    one = Metric(first.name, first.documentation, first.type)
    for (name, labels), found in values.items():
        one.add_sample(name, dict(labels), combine(found))
    return one
