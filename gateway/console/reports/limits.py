"""Use of limits, the callers closest to their limits, and refusals."""

from collections.abc import Iterable, Iterator
from heapq import nlargest
from typing import Final

from gateway.config.secrets.redactor import LiveRedactor
from gateway.console.recording.recorded_calls import MAX_REFUSALS, RecordedCalls
from gateway.json_types import JsonObject
from gateway.protocol.dispatcher import Dispatcher
from gateway.rfc3339 import timestamp
from gateway.transports.http.quota import ResourceQuota
from gateway.transports.http_server import HttpServer

MAX_CALLERS: Final = 100
_UNITS: Final = {"unread": "bytes", "concurrency": "calls"}
_PERIODS: Final = {1: "s", 60: "min", 3600: "h", 86400: "d"}


def nearest_to_limits(uses: Iterable[JsonObject]) -> list[JsonObject]:
    """Return the uses with the largest share of a limit, largest first."""
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
    """Return the callers and refusals of this process."""
    masked = redactor.json
    refusals = sorted([*calls.refused(), *_refused_by_quotas(http)], key=lambda each: each["at"])
    return {
        "callers": masked(nearest_to_limits(_uses(dispatcher, http))),
        "refusals": masked(refusals[-MAX_REFUSALS:]),
    }


def _uses(dispatcher: Dispatcher, http: HttpServer) -> Iterator[JsonObject]:
    for rate in dispatcher.rates.uses():
        per = _PERIODS.get(rate.rate.seconds, f"{rate.rate.seconds} s")
        yield _use(rate.caller or None, rate.name, rate.used, rate.rate.amount, per=per)
    for place in dispatcher.concurrency.uses():
        name = "limits.concurrency, per_caller" if place.is_caller else f"concurrency of {place.name}"
        caller = place.name if place.is_caller else None
        yield _use(caller, name, place.running + place.waiting, place.capacity)
    limits = dispatcher.store.current.limits.tasks
    # The default documented in `TaskLimits.per_caller`.
    most = limits.per_caller if limits.per_caller is not None else max(1, limits.total // 2)
    for caller, used in dispatcher.tasks.limiter.unfinished_by_caller.items():
        yield _use(caller, "limits.tasks.per_caller", used, most)
    for name, quota in _quotas(http):
        for caller, used in quota.used_by_caller.items():
            # An empty name is for callers without a limit of their own.
            if caller:
                yield _use(caller, f"limits.{name}.per_caller", used, quota.per_caller)


def _refused_by_quotas(http: HttpServer) -> Iterator[JsonObject]:
    for name, quota in _quotas(http):
        for each in quota.refusals:
            yield {"at": timestamp(each.at), "caller": each.caller or None, "what": name, "limit": f"limits.{name}"}


def _quotas(http: HttpServer) -> Iterator[tuple[str, ResourceQuota]]:
    for name, quota in http.quotas.items():
        if isinstance(quota, ResourceQuota):
            yield name, quota


def _use(caller: str | None, name: str, used: int, limit: int, *, per: str | None = None) -> JsonObject:
    return {"caller": caller, "name": name, "used": used, "limit": limit, "per": per}
