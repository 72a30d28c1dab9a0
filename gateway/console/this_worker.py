"""Reports on the calls, sessions, upstreams and limits of this process, for the console API and other workers."""

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from typing import Final

import msgspec

from gateway.config.secrets.redactor import LiveRedactor
from gateway.console.call_record import CallRecord
from gateway.console.recorded_calls import MAX_REFUSALS, CallFilter, RecordedCalls
from gateway.console.responses import short_id
from gateway.json_types import Json, JsonObject
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.exchange import Binding
from gateway.protocol.session import Session
from gateway.rfc3339 import timestamp
from gateway.telemetry.health import Health
from gateway.telemetry.logs import title_of
from gateway.transports.errors import HttpError
from gateway.transports.http_server import HttpServer
from gateway.transports.quota import ResourceQuota
from gateway.upstreams.server import UpstreamServer
from gateway.upstreams.source import UpstreamSource

MAX_LISTED: Final = 5000
_LISTEN: Final = "subscriptions/listen"
MAX_CALLERS: Final = 100
_PERIODS: Final = {1: "s", 60: "min", 3600: "h", 86400: "d"}
NO_SESSION: Final = HttpError(status=404, message="Unknown session")
_OF_PROCESS: Final = HttpError(status=409, message="The stdio session ends only when its process exits")
_UNKNOWN: Final = HttpError(status=404, message="Unknown upstream")

OpenSessions = Callable[[], Iterable[tuple[Binding, Session]]]
"""Returns the open sessions of this process, each with its transport."""
AskOthers = Callable[[str, str], Awaitable[Sequence[Json]]]
"""Sends a method and a path to `ThisWorker.answer` of all other workers, and returns their non-empty responses."""


class ThisWorker(msgspec.Struct, frozen=True, kw_only=True):
    calls: RecordedCalls
    dispatcher: Dispatcher
    upstreams: UpstreamSource
    http: HttpServer
    open_sessions: OpenSessions
    health: Health
    redactor: LiveRedactor

    async def answer(self, method: str, path: str, query: Mapping[str, str]) -> Json:  # noqa: PLR0911 - one for each path
        """Handle a request from another worker. Return None if this worker has no such call, session or upstream.

        Raise ValueError if the request is malformed.
        """
        what, _, name = path.partition("/")
        match method, what:
            case "GET", "calls" if name:
                record = self.calls.find(int(name))
                return None if record is None else record.detail()
            case "GET", "calls":
                return self.calls.listed(CallFilter.parse(query))
            case "GET", "sessions":
                return self._sessions()
            case "DELETE", "sessions":
                # Return None if this worker cannot end the session, because another worker can have the session.
                return await self.end_session(name) is None or None
            case "GET", "upstreams":
                return {"upstreams": [_upstream(each, self.redactor) for each in self.upstreams.servers.values()]}
            case "POST", "upstreams":
                return self.reconnect(name) is None or None
            case "GET", "limits":
                return self._limits()
            case "GET", "rates":
                return self.calls.rates.as_json()
            case "GET", "news":
                return self.news(int(query["since"]))
        raise ValueError(f"{method} {path}")

    def upstream_states(self) -> dict[str, str]:
        return {name: server.state for name, server in self.upstreams.servers.items()}

    def reconnect(self, name: str) -> HttpError | None:
        server = self.upstreams.servers.get(name)
        if server is None:
            return _UNKNOWN
        server.reconnect()
        return None

    async def end_session(self, name: str) -> HttpError | None:
        """End the session with the short id `name`. Return an error if the session cannot be ended."""
        found = next((each for each in self.open_sessions() if short_id(each[1].id) == name), None)
        if found is None:
            return NO_SESSION
        if found[0] is Binding.STDIO:
            return _OF_PROCESS
        return None if await self.http.end_session(found[1]) else NO_SESSION

    def status(self) -> JsonObject:
        concurrency, counts = self.dispatcher.concurrency, self.dispatcher.tasks.store.counts
        return {
            "state": self.health.state,
            "problems": len(self.health.problems()),
            "generation": self.dispatcher.store.current.generation,
            "callsRunning": concurrency.running,
            "callsWaiting": concurrency.waiting,
            "sessions": sum(1 for _ in self.open_sessions()),
            "streams": len(self.http.limits.streams),
            "tasks": {str(status): count for status, count in counts.items() if count},
            "upstreams": self.upstream_states(),
            "upstreamsDown": sum(bool(server.pool.circuit.reason) for server in self.upstreams.servers.values()),
            "rate": self.calls.rates.last_seconds(),
        }

    def news(self, since: int) -> JsonObject:
        """Return the status, and `RecordedCalls.since`."""
        return {"status": self.status(), **self.calls.since(since)}

    def _sessions(self) -> JsonObject:
        newest = sorted(self.open_sessions(), key=lambda found: -found[1].created_at)
        sessions = [self._session(binding, session) for binding, session in newest[:MAX_LISTED]]
        # In modern revisions, an open subscription is a running request.
        listening = (_stream(record) for record in self.calls.running if record.facts["method"] == _LISTEN)
        return {
            "sessions": sessions,
            "total": len(newest),
            "streams": [*listening, *({"kind": "get", **each} for each in sessions if each["streams"])],
        }

    def _session(self, binding: Binding, session: Session) -> dict[str, Json]:
        count, address = self.calls.use_of(session.id)
        live, masked = self.http.sessions.served_here(session.id), self.redactor.text
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

    def _limits(self) -> JsonObject:
        refusals = self.calls.refused()
        for name, quota in self._quotas():
            refusals += [
                {"at": timestamp(at), "caller": caller or None, "what": name, "limit": f"limits.{name}"}
                for at, caller in quota.refusals
            ]
        limits = merged_limits([{"callers": self._uses(), "refusals": refusals}])
        return {name: self.redactor.json(found) for name, found in limits.items()}

    def _uses(self) -> Iterator[JsonObject]:
        dispatcher = self.dispatcher
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
        for name, quota in self._quotas():
            for caller, used in quota.used_by_caller.items():
                # The empty name collects callers without their own limit.
                if caller:
                    yield _use(caller, f"limits.{name}.per_caller", used, quota.per_caller)

    def _quotas(self) -> Iterator[tuple[str, ResourceQuota]]:
        for name, quota in self.http.quotas.items():
            if isinstance(quota, ResourceQuota):
                yield name, quota


def _use(caller: str | None, name: str, used: int, limit: int, *, per: str | None = None) -> JsonObject:
    return {"caller": caller, "name": name, "used": used, "limit": limit, "per": per}


def merged_limits(found: Sequence[JsonObject]) -> JsonObject:
    """Merge the limits of several workers. Keep the callers that are nearest to their limits, and the last refusals."""
    refusals = sorted((refusal for each in found for refusal in each["refusals"]), key=lambda refusal: refusal["at"])
    callers = (caller for each in found for caller in each["callers"])
    return {
        "callers": nlargest(MAX_CALLERS, callers, key=lambda use: use["used"] / use["limit"] if use["limit"] else 0.0),
        "refusals": refusals[-MAX_REFUSALS:],
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


def _upstream(server: UpstreamServer, redactor: LiveRedactor) -> dict[str, Json]:
    """Return the report of an upstream. Messages are masked, because an upstream can quote secrets."""
    pool, masked, status = server.pool, redactor.text, server.status()
    sessions, said = pool.sessions, pool.spec.stderr_tail
    return {
        "name": server.name,
        "state": server.state,
        "reason": masked(pool.circuit.reason) or None,
        "transport": status.get("transport"),
        "revision": status.get("revision"),
        "server": redactor.json(_server_info(sessions[0].server_info)) if sessions else None,
        "offers": status.get("offers", {}),
        "missing": redactor.json(status.get("missing", {})),
        "sessions": len(sessions),
        "calls": status["calls"],
        "restarts": pool.restarts,
        "since": timestamp(pool.circuit.since),
        "nextTryAt": _next_try(pool.circuit.next_try) if pool.circuit.reason else None,
        "errors": [{"at": timestamp(at), "message": masked(message)} for at, message in pool.circuit.failures],
        "stderr": None if said is None else masked(said.text).splitlines(),
    }


def _next_try(at: float) -> str | None:
    seconds = at - time.monotonic()
    return timestamp(time.time() + seconds) if seconds > 0 else None


def _server_info(info: JsonObject) -> JsonObject | None:
    name = info.get("name")
    return {"name": name, "version": info.get("version")} if isinstance(name, str) else None
