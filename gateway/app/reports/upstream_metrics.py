"""The durations of requests to upstreams, as a histogram for each."""

from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from gateway.app.optional_sources import Upstreams
from gateway.telemetry.metric_definitions import SECONDS_BUCKETS, UPSTREAM_SECONDS

_BOUNDS: Final = (*map(floatToGoString, SECONDS_BUCKETS), "+Inf")


class UpstreamMetrics(Collector):
    """Reads what the pools have counted. Runs in another thread, which may see a request in part."""

    def __init__(self, upstreams: Upstreams) -> None:
        self._upstreams: Final = upstreams

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(UPSTREAM_SECONDS.name, UPSTREAM_SECONDS.meaning, labels=UPSTREAM_SECONDS.labels)
        for name, server in list(self._upstreams.servers.items()):
            buckets = list(zip(_BOUNDS, accumulate(server.pool.within), strict=True))
            family.add_metric((name,), buckets, server.pool.seconds)
        yield family
