"""Combines the readiness, status and metrics of all workers. Most numbers are added up, and lists are joined."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from gateway.json_types import Json, JsonObject
from gateway.telemetry.metric_definitions import METRIC_DEFINITIONS
from gateway.telemetry.metrics import render

_SUMMED: Final = (
    *("sessions", "streams", "calls_running", "calls_waiting", "children", "children_ending", "orphans"),
    *("orphans_reaped", "strays_killed", "tasks", "threads", "threads_stuck", "worker_threads", "worker_threads_stuck"),
)
_SUMMED_BY_NAME: Final = ("refused",)
_JOINED: Final = ("problems", "warnings", "restart_required")
_STATES: Final = ("ready", "starting", "stopping")
_OF_EACH: Final = ("pid", "state", "uptime_seconds", "generation", "calls_running", "sessions", "streams")
_UNREACHABLE: Final = "unreachable"
_COMBINE: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {"sum": sum, "max": max, "min": min}
_BY_NAME: Final = {each.name: _COMBINE[each.of_workers] for each in METRIC_DEFINITIONS}


def readiness_of_all(readinesses: Sequence[JsonObject]) -> JsonObject:
    warnings = joined(readinesses, "warnings")
    return {
        "ready": any(each["ready"] for each in readinesses),
        "state": _best_state(readinesses),
        "problems": joined(readinesses, "problems"),
        **({"warnings": warnings} if warnings else {}),
    }


def status_of_all(found: Mapping[int, JsonObject | None]) -> JsonObject:
    """Combine the statuses of all workers. The keys are worker numbers. None means that a worker did not respond."""
    statuses = [each for each in found.values() if each is not None]
    return {
        **{name: value for name, value in statuses[0].items() if name != "pid"},
        "state": _best_state(statuses),
        "uptime_seconds": max(each["uptime_seconds"] for each in statuses),
        **{name: sum(each.get(name) or 0 for each in statuses) for name in _SUMMED},
        **{name: _by_name(each.get(name) or {} for each in statuses) for name in _SUMMED_BY_NAME},
        **{name: joined(statuses, name) for name in _JOINED if any(name in each for each in statuses)},
        "limits": _limits([each.get("limits") or {} for each in statuses]),
        "clients": {"sessions": _clients(each["clients"]["sessions"] for each in statuses if "clients" in each)},
        "workers": [_worker(number, found[number]) for number in sorted(found)],
    }


def metrics_of_all(texts: Sequence[str], accept: str) -> tuple[bytes, str]:
    """Combine the workers' metrics in a format that the header `accept` allows. This function blocks."""
    families: dict[str, list[Metric]] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            families.setdefault(family.name, []).append(family)
    return render(map(_combined, families.values()), accept)


def joined(reports: Iterable[JsonObject], name: str) -> list[Json]:
    return [*dict.fromkeys(entry for report in reports for entry in report.get(name) or ())]


def _worker(number: int, status: JsonObject | None) -> JsonObject:
    facts = {"state": _UNREACHABLE} if status is None else {name: status.get(name) for name in _OF_EACH}
    return {"worker": number, **facts}


def _best_state(reports: Iterable[JsonObject]) -> str:
    found = {report["state"] for report in reports}
    return next((state for state in _STATES if state in found), _UNREACHABLE)


def _by_name(counts: Iterable[Mapping[str, int]]) -> dict[str, Json]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return total


def _limits(limits: Sequence[Mapping[str, JsonObject]]) -> dict[str, Json]:
    total: dict[str, Json] = {}
    for each in limits:
        for name, use in each.items():
            before = total.get(name)
            total[name] = use if before is None else {**before, **use, **_added(before, use)}
    return total


def _added(before: JsonObject, use: JsonObject) -> JsonObject:
    bounds = (before["limit"], use["limit"])
    used = before["used"] + use["used"]
    if use.get("shared") or before.get("shared"):
        # A shared limit applies to all workers together.
        return {"used": used, "limit": use["limit"]}
    return {"used": used, "limit": None if None in bounds else sum(bounds)}


def _clients(lists: Iterable[Sequence[JsonObject]]) -> list[Json]:
    total: dict[tuple[Json, ...], JsonObject] = {}
    for entry in (entry for entries in lists for entry in entries):
        # Merge entries of different workers for the same kind of client.
        kind = tuple(value for name, value in entry.items() if name not in {"sessions", "kinds"})
        before = total.get(kind)
        total[kind] = entry if before is None else {**entry, "sessions": before["sessions"] + entry["sessions"]}
    return sorted(total.values(), key=lambda entry: (entry["client"] is None, -entry["sessions"]))


def _combined(families: Sequence[Metric]) -> Metric:
    first = families[0]
    # The parser removes the suffix of counters, as in OpenMetrics.
    combine = _BY_NAME.get(first.name) or _BY_NAME.get(f"{first.name}_total") or sum
    values: dict[tuple[str, tuple[tuple[str, str], ...]], list[float]] = {}
    for sample in (sample for family in families for sample in family.samples):
        values.setdefault((sample.name, tuple(sample.labels.items())), []).append(sample.value)
    metric = Metric(first.name, first.documentation, first.type)
    for (name, labels), found in values.items():
        metric.add_sample(name, dict(labels), combine(found))
    return metric
