"""Creates reports about the sessions and limits of this process, and merges the reports of several workers."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import nlargest
from typing import Final

from gateway.config.secrets.redactor import LiveRedactor
from gateway.console.call_record import CallRecord
from gateway.console.recorded_calls import MAX_REFUSALS, CallFilter, RecordedCalls
from gateway.console.responses import short_id
from gateway.json_types import Json, JsonObject
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.exchange import Binding
from gateway.protocol.session import Session
from gateway.rfc3339 import timestamp
from gateway.transports.errors import HttpError
from gateway.transports.http_server import HttpServer
from gateway.transports.quota import ResourceQuota
from gateway.wire.meta import title_of

MAX_LISTED: Final = 5000
_LISTEN: Final = "subscriptions/listen"
NO_SESSION: Final = HttpError(status=404, message="Unknown session")
_OF_PROCESS: Final = HttpError(status=409, message="The stdio session ends with its process")


OpenSessions = Callable[[], Iterable[tuple[Binding, Session]]]
"""Returns the open legacy sessions of this process, each with its transport."""


def sessions_report(
    open_sessions: OpenSessions, http: HttpServer, calls: RecordedCalls, redactor: LiveRedactor
) -> JsonObject:
    """Return the sessions of this process, newest first, and the open streams."""
    newest = sorted(open_sessions(), key=lambda found: -found[1].created_at)
    sessions = [_facts(binding, session, http, calls, redactor) for binding, session in newest[:MAX_LISTED]]
    # In modern revisions, an open subscription is a running request.
    listening = (_stream(record) for record in calls.running if record.facts["method"] == _LISTEN)
    return {
        "sessions": sessions,
        "total": len(newest),
        "streams": [*listening, *({"kind": "get", **each} for each in sessions if each["streams"])],
    }


async def end_session(open_sessions: OpenSessions, http: HttpServer, name: str) -> HttpError | None:
    """End the session with the short id `name`. Return an error if the session cannot be ended."""
    found = next((each for each in open_sessions() if short_id(each[1].id) == name), None)
    if found is None:
        return NO_SESSION
    if found[0] is Binding.STDIO:
        return _OF_PROCESS
    return None if await http.end_session(found[1]) else NO_SESSION


def _facts(
    binding: Binding, session: Session, http: HttpServer, calls: RecordedCalls, redactor: LiveRedactor
) -> dict[str, Json]:
    count, address = calls.use_of(session.id)
    live, masked = http.sessions.served_here(session.id), redactor.text
    return {
        "id": short_id(session.id),
        "client": masked(title_of(session.client_info)),
        "revision": session.revision,
        "transport": binding.value,
        "principal": session.identity.principal,
        "address": address,
        "createdAt": timestamp(session.created_at),
        "lastUsedAt": timestamp(time.time() - (0.0 if live is None else live.idle_seconds)),
        "streams": live.readers if live is not None else int(binding is Binding.HTTP_SSE),
        "subscriptions": sorted(map(masked, session.subscriptions)),
        "calls": count,
        "view": session.view,
    }


def _stream(record: CallRecord) -> JsonObject:
    call = record.summary()
    return {
        **{name: call[name] for name in ("id", "client", "revision", "transport", "address", "view")},
        "kind": "listen",
        "principal": call["caller"],
        "createdAt": call["at"],
        "lastUsedAt": call["at"],
        "streams": 1,
        "subscriptions": sorted(map(record.redactor.text, _uris(record))),
        "calls": 0,
    }


def _uris(record: CallRecord) -> list[str]:
    wanted: Json = {} if record.call is None else record.call.params.get("notifications")
    uris = wanted.get("resourceSubscriptions") if isinstance(wanted, dict) else None
    return [uri for uri in uris if isinstance(uri, str)] if isinstance(uris, list) else []


MAX_CALLERS: Final = 100
_UNITS: Final = {"unread": "bytes", "concurrency": "calls"}
_PERIODS: Final = {1: "s", 60: "min", 3600: "h", 86400: "d"}


def nearest_to_limits(uses: Iterable[JsonObject]) -> list[JsonObject]:
    return nlargest(MAX_CALLERS, uses, key=lambda use: use["used"] / use["limit"] if use["limit"] else 0.0)


def quotas(status: JsonObject) -> list[JsonObject]:
    return [
        {
            "name": f"limits.{name}",
            "used": use["used"],
            "limit": use["limit"],
            "perCaller": use.get("per_caller"),
            "unit": _UNITS.get(name, name),
        }
        for name, use in status["limits"].items()
    ]


def limits_report(dispatcher: Dispatcher, http: HttpServer, calls: RecordedCalls, redactor: LiveRedactor) -> JsonObject:
    masked = redactor.json
    refusals = sorted([*calls.refused(), *_refused_by_quotas(http)], key=lambda each: each["at"])
    return {
        "callers": masked(nearest_to_limits(_uses(dispatcher, http))),
        "refusals": masked(refusals[-MAX_REFUSALS:]),
    }


def _uses(dispatcher: Dispatcher, http: HttpServer) -> Iterator[JsonObject]:
    for name, caller, rate, used in dispatcher.rates.uses():
        yield _use(caller or None, name, used, rate.amount, per=_PERIODS.get(rate.seconds, f"{rate.seconds} s"))
    for caller, used, capacity in dispatcher.concurrency.uses(by_caller=True):
        yield _use(caller, "limits.concurrency, per_caller", used, capacity)
    for primitive, used, capacity in dispatcher.concurrency.uses(by_caller=False):
        yield _use(None, f"concurrency of {primitive}", used, capacity)
    limits = dispatcher.store.current.limits.tasks
    # Use the default that `TaskLimits.per_caller` documents.
    most = limits.per_caller if limits.per_caller is not None else max(1, limits.total // 2)
    for caller, used in dispatcher.tasks.limiter.unfinished_by_caller.items():
        yield _use(caller, "limits.tasks.per_caller", used, most)
    for name, quota in _quotas(http):
        for caller, used in quota.used_by_caller.items():
            # The empty name collects callers without their own limit.
            if caller:
                yield _use(caller, f"limits.{name}.per_caller", used, quota.per_caller)


def _refused_by_quotas(http: HttpServer) -> Iterator[JsonObject]:
    for name, quota in _quotas(http):
        for at, caller in quota.refusals:
            yield {"at": timestamp(at), "caller": caller or None, "what": name, "limit": f"limits.{name}"}


def _quotas(http: HttpServer) -> Iterator[tuple[str, ResourceQuota]]:
    for name, quota in http.quotas.items():
        if isinstance(quota, ResourceQuota):
            yield name, quota


def _use(caller: str | None, name: str, used: int, limit: int, *, per: str | None = None) -> JsonObject:
    return {"caller": caller, "name": name, "used": used, "limit": limit, "per": per}


_SUMMED: Final = ("callsRunning", "callsWaiting", "sessions", "streams")


def merged_calls(found: Sequence[JsonObject], wanted: CallFilter) -> JsonObject:
    """Merge the call lists of several workers, whose sequence numbers are unique and increase with time."""
    calls = sorted((call for each in found for call in each["calls"]), key=lambda call: call["seq"])
    oldest = [each["oldest"] for each in found if each["oldest"] is not None]
    newest = [each["newest"] for each in found if each["newest"] is not None]
    return {
        "calls": calls[: wanted.limit] if wanted.after is not None else calls[-wanted.limit :],
        "oldest": min(oldest, default=None),
        "newest": max(newest, default=None),
    }


def merged_sessions(found: Sequence[JsonObject]) -> JsonObject:
    """Merge the session lists of several workers, which can serve the same session."""
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
    """List the upstreams of each worker separately, because each worker has its own connections."""
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
    """Merge the `status` events of several workers: sum their counts, and copy other members from this worker."""
    every = [own, *others]
    return {
        **own,
        **{name: sum(each[name] for each in every) for name in _SUMMED},
        "rate": {name: sum(each["rate"][name] for each in every) for name in ("calls", "errors")},
    }
