"""Merges the reports of several workers: joins lists and sums numbers. Pure."""

from collections.abc import Sequence
from typing import Final

from gateway.console.recording.recorded_calls import MAX_REFUSALS, CallFilter
from gateway.console.reports.limits import nearest_to_limits
from gateway.json_types import JsonObject

_SUMMED: Final = ("callsRunning", "callsWaiting", "sessions", "streams")


def merged_calls(found: Sequence[JsonObject], wanted: CallFilter) -> JsonObject:
    """Merge lists of calls. Sequence numbers are unique and increase in all workers."""
    calls = sorted((call for each in found for call in each["calls"]), key=lambda call: call["seq"])
    oldest = [each["oldest"] for each in found if each["oldest"] is not None]
    newest = [each["newest"] for each in found if each["newest"] is not None]
    return {
        "calls": calls[: wanted.limit] if wanted.after is not None else calls[-wanted.limit :],
        "oldest": min(oldest, default=None),
        "newest": max(newest, default=None),
    }


def merged_sessions(found: Sequence[JsonObject]) -> JsonObject:
    """Merge lists of sessions. Several workers can serve the same session."""
    sessions: dict[str, JsonObject] = {}
    for session in sorted((each for one in found for each in one["sessions"]), key=lambda each: each["lastUsedAt"]):
        before = sessions.pop(session["id"], None)
        counts = {} if before is None else {name: before[name] + session[name] for name in ("streams", "calls")}
        sessions[session["id"]] = {**session, **counts}
    twice = sum(len(each["sessions"]) for each in found) - len(sessions)
    return {
        "sessions": [*sessions.values()][::-1],
        "total": sum(each["total"] for each in found) - twice,
        "streams": [stream for each in found for stream in each["streams"]],
    }


def merged_upstreams(found: Sequence[JsonObject]) -> JsonObject:
    """Join the upstreams of all workers, because each has its own connections."""
    if len(found) == 1:
        return found[0]
    entries = [{**entry, "worker": at} for at, each in enumerate(found) for entry in each["upstreams"]]
    return {"upstreams": sorted(entries, key=lambda entry: (entry["name"], entry["worker"]))}


def merged_limits(found: Sequence[JsonObject]) -> JsonObject:
    refusals = sorted((refusal for each in found for refusal in each["refusals"]), key=lambda refusal: refusal["at"])
    callers = [caller for each in found for caller in each["callers"]]
    return {
        "callers": nearest_to_limits(callers),
        "refusals": refusals[-MAX_REFUSALS:],
    }


def merged_status(own: JsonObject, others: Sequence[JsonObject]) -> JsonObject:
    """Merge the event `status`: counts are summed, other members are those of this worker."""
    every = [own, *others]
    return {
        **own,
        **{name: sum(each[name] for each in every) for name in _SUMMED},
        "rate": {name: sum(each["rate"][name] for each in every) for name in ("calls", "errors")},
    }
