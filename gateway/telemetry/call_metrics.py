"""Counts calls and their durations, by primitive and era.

Unknown names share one label, and a reload removes the series of removed definitions, so the number of series is
bounded. Only the event loop changes the counters, so integers are enough. The thread-safe counters of Prometheus would
triple the cost.
"""

import math
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gateway.telemetry.metric_definitions import SECONDS_BUCKETS
from gateway.telemetry.observer import CallFacts, CallResult, Outcome
from gateway.wire.meta import title_of
from gateway.wire.revisions import Era

UNKNOWN: Final = "<unknown>"
_COMPLETION: Final = "completion"
_COMPLETES: Final = "completion/complete"

Key = tuple[str, str, str]


class CallMetrics:
    def __init__(self) -> None:
        self._series: Final[dict[Key, Series]] = {}
        self._found: Final[dict[tuple[str, str, str | None, str], Series]] = {}
        """Series by the fields of a call, to avoid creating labels for each call."""
        self._running: Final[dict[str, Series]] = {}
        """Series by call id, so that a call is counted in the series where it started, even after a reload."""

    def began(self, call: CallFacts) -> None:
        fields = (call.method, call.kind, call.name, call.revision)
        self._running[call.id] = self._found.get(fields) or self._find(fields, call)

    def ended(self, call: CallFacts, ending: CallResult) -> None:
        self._running.pop(call.id).add(ending.outcome, ending.seconds)

    def in_flight(self) -> Mapping[tuple[str, ...], float]:
        running = Counter(series.key for series in self._running.values())
        return {key: running[key] for key in self._series}

    def keep(self, names: Mapping[str, frozenset[str]]) -> None:
        """Drop all series except those of unknown names and of `names`, which maps each kind to its names."""
        for key in list(self._series):
            kind, name, _ = key
            if name != UNKNOWN and name not in names.get(kind, ()):
                del self._series[key]
        # Clear the cache, because a name that returns would otherwise be counted in a dropped series.
        self._found.clear()

    def series(self) -> Sequence["Series"]:
        """Return all series. If another thread reads a series, the last call can be partially counted."""
        return list(self._series.values())

    def _find(self, fields: tuple[str, str, str | None, str], call: CallFacts) -> "Series":
        kind = _COMPLETION if call.method == _COMPLETES else call.kind
        key = (kind, call.name or UNKNOWN, call.era.value)
        series = self._found[fields] = self._series.setdefault(key, Series(key))
        return series


class Series:
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


RECENT_SECONDS: Final = 600.0
_REMEMBERED: Final = 200

_NEVER: Final = (0, -math.inf)

Kind = tuple[Era, str, str, str]


class RecentClients:
    """An observer that counts the recent calls of clients of the modern era."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._calls: Final[dict[tuple[str, str, str], tuple[int, float]]] = {}

    def began(self, call: CallFacts) -> None:
        if call.session_id is not None:
            return
        client, now = (call.revision, call.caller.binding, title_of(call.terms.client_info)), self._clock()
        calls, last = self._calls.pop(client, _NEVER)
        self._calls[client] = (calls + 1 if now - last < RECENT_SECONDS else 1), now
        if len(self._calls) > _REMEMBERED:
            # Clients choose their names, so the dictionary must be bounded.
            del self._calls[next(iter(self._calls))]

    def ended(self, call: CallFacts, ending: CallResult) -> None:
        pass

    def calls(self) -> dict[Kind, int]:
        """Return the number of calls of each kind of client that has called within `RECENT_SECONDS`."""
        since = self._clock() - RECENT_SECONDS
        return {(Era.MODERN, *client): calls for client, (calls, last) in self._calls.items() if last > since}
