"""Limits: how much of each is used, the callers who are nearest to theirs, and who was refused."""

from collections.abc import Iterator
from heapq import nlargest
from typing import Final

import msgspec

from gateway.console.recording.moments import moment
from gateway.console.recording.recorded_calls import MAX_REFUSALS, RecordedCalls
from gateway.console.reports.daemon import Daemon
from gateway.json_types import Json, JsonObject
from gateway.transports.http.quota import ResourceQuota
from gateway.transports.http_server import HttpServer

MAX_CALLERS: Final = 100
_UNITS: Final = {"unread": "bytes", "concurrency": "calls"}


class Nearness(msgspec.Struct, frozen=True, kw_only=True):
    """The use that one caller makes of a limit."""

    caller: str | None
    """None: all callers together."""
    name: str
    """The limit's."""
    used: int
    limit: int
    per: str | None = None

    @property
    def share(self) -> float:
        return self.used / self.limit if self.limit else 0.0


class LimitReport:
    """The limits of this process."""

    def __init__(self, daemon: Daemon, calls: RecordedCalls) -> None:
        self._daemon: Final = daemon
        self._calls: Final = calls

    def listed(self) -> JsonObject:
        status = self._daemon.status()
        masked = self._daemon.pipeline.redactor.json
        nearest = nlargest(MAX_CALLERS, self._nearness(), key=lambda each: each.share)
        refusals = sorted([*self._calls.refused(), *self._refused_by_quotas()], key=lambda each: each["at"])
        return {
            "quotas": [_quota(name, use) for name, use in status["limits"].items()],
            "callers": masked([_near(each) for each in nearest]),
            "refusals": masked(refusals[-MAX_REFUSALS:]),
            "refused": status["refused"],
        }

    def _nearness(self) -> Iterator[Nearness]:
        dispatcher = self._daemon.dispatcher
        for rate in dispatcher.rates.uses():
            yield Nearness(
                caller=rate.caller or None,
                name=rate.name,
                used=rate.used,
                limit=rate.rate.amount,
                per=_period(rate.rate.seconds),
            )
        for place in dispatcher.concurrency.uses():
            name = "limits.concurrency, per_caller" if place.is_caller else f"concurrency of {place.name}"
            caller = place.name if place.is_caller else None
            used = place.running + place.waiting
            yield Nearness(caller=caller, name=name, used=used, limit=place.capacity)
        limits = self._daemon.pipeline.store.current.limits.tasks
        most = limits.per_caller if limits.per_caller is not None else max(1, limits.total // 2)
        for caller, used in dispatcher.tasks.runner.unfinished_by_caller.items():
            yield Nearness(caller=caller, name="limits.tasks.per_caller", used=used, limit=most)
        for name, quota in self._quotas():
            for caller, used in quota.used_by_caller.items():
                limit = f"limits.{name}.per_caller"
                yield Nearness(caller=caller or None, name=limit, used=used, limit=quota.per_caller)

    def _refused_by_quotas(self) -> Iterator[JsonObject]:
        for name, quota in self._quotas():
            for each in quota.refusals:
                yield {"at": moment(each.at), "caller": each.caller or None, "what": name, "limit": f"limits.{name}"}

    def _quotas(self) -> Iterator[tuple[str, ResourceQuota]]:
        http: HttpServer | None = self._daemon.http()
        for name, quota in ({} if http is None else http.quotas).items():
            if isinstance(quota, ResourceQuota):
                yield name, quota


def _quota(name: str, use: JsonObject) -> JsonObject:
    facts: dict[str, Json] = {"name": f"limits.{name}", "used": use["used"], "limit": use["limit"]}
    return {**facts, "perCaller": use.get("per_caller"), "unit": _UNITS.get(name, name)}


def _near(near: Nearness) -> JsonObject:
    return {
        "caller": near.caller,
        "name": near.name,
        "used": near.used,
        "limit": near.limit,
        "per": near.per,
    }


_PERIODS: Final = {1: "s", 60: "min", 3600: "h", 86400: "d"}


def _period(seconds: int) -> str:
    return _PERIODS.get(seconds, f"{seconds} s")
