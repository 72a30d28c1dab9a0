"""Counts calls and their times, by what was called and in which era. An observer of calls.

A series is looked up once for each thing that is called, not for each call. Labels are the catalog's names: what it
does not know counts under one label, and with a definition that a reload removes go its series, lest they add up.
"""

from collections import Counter as Counts
from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from gateway.protocol.calls import Call, EndedAs, Ending
from gateway.telemetry.measure import CALL_SECONDS, CALLS

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
        self._series: Final[dict[Key, _Series]] = {}
        self._found: Final[dict[tuple[str, str, str | None, str], _Series]] = {}
        """The same by what a call says of itself, its revision included: saves making a key of labels each time."""
        self._running: Final[dict[str, _Series]] = {}
        """By call id: what began under a name ends under it, whatever a reload has done meanwhile."""

    def began(self, call: Call) -> None:
        self._running[call.id] = self._series_of(call)

    def ended(self, call: Call, ending: Ending) -> None:
        self._running.pop(call.id).ended(ending)

    def in_flight(self) -> Mapping[tuple[str, ...], float]:
        """How many calls run now, of all that was ever called and is there still."""
        running = Counts(series.key for series in self._running.values())
        return {key: running[key] for key in self._series}

    def keep(self, names: Mapping[str, frozenset[str]]) -> None:
        """Forget the series of all that is not among `names`, which are by kind."""
        for key in list(self._series):
            kind, name, _ = key
            if name != UNKNOWN and name not in names.get(kind, ()):
                self._series.pop(key).remove()
        self._found.clear()

    def _series_of(self, call: Call) -> "_Series":
        said = (call.method, call.kind, call.name, call.request.revision)
        series = self._found.get(said)
        if series is None:
            series = self._found[said] = self._named(call)
        return series

    def _named(self, call: Call) -> "_Series":
        kind = COMPLETION if call.method == _COMPLETES else call.kind
        key = (kind, call.name or UNKNOWN, call.request.era.value)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = _Series(key, self._ended, self._seconds)
        return series


class _Series:
    """Handles of one key's series."""

    __slots__ = ("_all_ended", "_all_seconds", "_ended", "_is_removed", "_seconds", "key")

    def __init__(self, key: Key, ended: Counter, seconds: Histogram) -> None:
        self.key: Final = key
        self._all_ended: Final = ended
        self._all_seconds: Final = seconds
        self._ended: Final[dict[EndedAs, Counter]] = {}
        self._is_removed = False
        self._seconds: Final = seconds.labels(*key)

    def ended(self, ending: Ending) -> None:
        if self._is_removed:
            return
        self._seconds.observe(ending.seconds)
        counter = self._ended.get(ending.outcome)
        if counter is None:
            counter = self._ended[ending.outcome] = self._all_ended.labels(*self.key, ending.outcome.value)
        counter.inc()

    def remove(self) -> None:
        self._is_removed = True
        for outcome in self._ended:
            self._all_ended.remove(*self.key, outcome.value)
        self._all_seconds.remove(*self.key)
