"""Provides the records and status of this process to the console API and to other workers."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from gateway.config.secrets.redactor import LiveRedactor
from gateway.console.event_feed import CALLS_PER_SECOND
from gateway.console.recorded_calls import CallFilter, RecordedCalls
from gateway.console.reports import OpenSessions, end_session, limits_report, sessions_report
from gateway.json_types import Json, JsonObject
from gateway.protocol.dispatcher import Dispatcher
from gateway.rfc3339 import timestamp
from gateway.telemetry.health import Health
from gateway.transports.errors import HttpError
from gateway.transports.http_server import HttpServer
from gateway.upstreams.server import UpstreamServer
from gateway.upstreams.source import UpstreamSource

_UNKNOWN: Final = HttpError(status=404, message="Unknown upstream")


def upstream_states(upstreams: UpstreamSource) -> Mapping[str, str]:
    return {name: server.state for name, server in upstreams.servers.items()}


def reconnect(upstreams: UpstreamSource, name: str) -> HttpError | None:
    server = upstreams.servers.get(name)
    if server is None:
        return _UNKNOWN
    server.reconnect()
    return None


def _facts(server: UpstreamServer, redactor: LiveRedactor) -> dict[str, Json]:
    """Return the report of an upstream. Messages are masked, because an upstream can quote secrets."""
    pool, masked, status = server.pool, redactor.text, server.status()
    sessions, said = pool.sessions, pool.stderr_tail
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
        "stderr": None if said is None else masked(said).splitlines(),
    }


def _next_try(at: float) -> str | None:
    seconds = at - time.monotonic()
    return timestamp(time.time() + seconds) if seconds > 0 else None


def _server_info(info: JsonObject) -> JsonObject | None:
    name = info.get("name")
    return {"name": name, "version": info.get("version")} if isinstance(name, str) else None


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
        """Handle a request of another worker. Return None if the name in the path is unknown.

        Raises:
            ValueError: the path or the query is malformed.
        """
        what, _, name = path.partition("/")
        match method, what:
            case "GET", "calls" if name:
                record = self.calls.find(int(name))
                return None if record is None else record.detail()
            case "GET", "calls":
                return self.calls.listed(CallFilter.parse(query))
            case "GET", "sessions":
                return sessions_report(self.open_sessions, self.http, self.calls, self.redactor)
            case "DELETE", "sessions":
                # Return None if this worker cannot end the session, because another worker can have the session.
                return await self.end_session(name) is None or None
            case "GET", "upstreams":
                return {"upstreams": [_facts(each, self.redactor) for each in self.upstreams.servers.values()]}
            case "POST", "upstreams":
                return reconnect(self.upstreams, name) is None or None
            case "GET", "limits":
                return limits_report(self.dispatcher, self.http, self.calls, self.redactor)
            case "GET", "rates":
                return self.calls.rates.as_json()
            case "GET", "news":
                return self.news(int(query["since"]))
        raise ValueError(f"{method} {path}")

    async def end_session(self, name: str) -> HttpError | None:
        return await end_session(self.open_sessions, self.http, name)

    def status(self) -> JsonObject:
        concurrency, counts = self.dispatcher.concurrency, self.dispatcher.tasks.store.counts
        return {
            "state": self.health.state,
            "problems": len(self.health.problems),
            "generation": self.dispatcher.store.current.generation,
            "callsRunning": concurrency.running,
            "callsWaiting": concurrency.waiting,
            "sessions": sum(1 for _ in self.open_sessions()),
            "streams": len(self.http.limits.streams),
            "tasks": {str(status): count for status, count in counts.items() if count},
            "upstreams": dict(upstream_states(self.upstreams)),
            "upstreamsDown": sum(bool(server.pool.circuit.reason) for server in self.upstreams.servers.values()),
            "rate": self.calls.rates.last_seconds(),
        }

    def news(self, since: int) -> JsonObject:
        """Return the status, and the latest calls that started or ended after the sequence number `since`."""
        found = self.calls.since(since)
        shown = found[-2 * CALLS_PER_SECOND :]
        return {
            "status": self.status(),
            "calls": [[number, record.summary()] for number, record in shown],
            "skipped": len(found) - len(shown),
        }
