"""Counts calls and their times, by what was called and in which era. An observer of calls.

A series is looked up once for each thing that is called, not for each call. Labels are the catalog's names: what it
does not know counts under one label, and with a definition that a reload removes go its series, lest they add up.
"""

from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gateway.protocol.calls import Call, EndedAs, Ending
from gateway.telemetry.measure import CALL_SECONDS, CALLS, CALLS_IN_FLIGHT

UNKNOWN: Final = "<unknown>"
"""The name of all that the catalog has no name for."""
COMPLETION: Final = "completion"
_COMPLETES: Final = "completion/complete"
_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
"""Seconds: from a fixed answer to a deployment."""

Key = tuple[str, str, str]
"""Kind, name and era."""


class CallMetrics:
    """The metrics of calls, in a registry of their own."""

    def __init__(self) -> None:
        self.registry: Final = CollectorRegistry()
        self._ended: Final = Counter(CALLS.name, CALLS.meaning, CALLS.labels, registry=self.registry)
        self._seconds: Final = Histogram(
            CALL_SECONDS.name, CALL_SECONDS.meaning, CALL_SECONDS.labels, registry=self.registry, buckets=_BUCKETS
        )
        self._in_flight: Final = Gauge(
            CALLS_IN_FLIGHT.name, CALLS_IN_FLIGHT.meaning, CALLS_IN_FLIGHT.labels, registry=self.registry
        )
        self._series: Final[dict[Key, _Series]] = {}
        self._running: Final[dict[str, _Series]] = {}
        """By call id: what began under a name ends under it, whatever a reload has done meanwhile."""

    def began(self, call: Call) -> None:
        series = self._running[call.id] = self._series_of(call)
        series.in_flight.inc()

    def ended(self, call: Call, ending: Ending) -> None:
        self._running.pop(call.id).ended(ending)

    def keep(self, names: Mapping[str, frozenset[str]]) -> None:
        """Forget the series of all that is not among `names`, which are by kind."""
        for key in list(self._series):
            kind, name, _ = key
            if name != UNKNOWN and name not in names.get(kind, ()):
                self._series.pop(key).remove()

    def _series_of(self, call: Call) -> "_Series":
        kind = COMPLETION if call.method == _COMPLETES else call.kind
        key = (kind, call.name or UNKNOWN, call.request.era.value)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = _Series(key, self._ended, self._seconds, self._in_flight)
        return series


class _Series:
    """Handles of one key's series."""

    __slots__ = ("_ended", "_family", "_is_removed", "_key", "_others", "_seconds", "in_flight")

    def __init__(self, key: Key, ended: Counter, seconds: Histogram, in_flight: Gauge) -> None:
        self._key: Final = key
        self._family: Final = ended
        self._others: Final = (seconds, in_flight)
        self._ended: Final[dict[EndedAs, Counter]] = {}
        self._is_removed = False
        self._seconds: Final = seconds.labels(*key)
        self.in_flight: Final = in_flight.labels(*key)

    def ended(self, ending: Ending) -> None:
        if self._is_removed:
            return
        self.in_flight.dec()
        self._seconds.observe(ending.seconds)
        counter = self._ended.get(ending.outcome)
        if counter is None:
            counter = self._ended[ending.outcome] = self._family.labels(*self._key, ending.outcome.value)
        counter.inc()

    def remove(self) -> None:
        self._is_removed = True
        for outcome in self._ended:
            self._family.remove(*self._key, outcome.value)
        for family in self._others:
            family.remove(*self._key)
