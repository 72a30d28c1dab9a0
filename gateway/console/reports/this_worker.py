"""The records of this process, for the API and for other workers."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from gateway.config.secrets.redactor import LiveRedactor
from gateway.console.recording.event_feed import CALLS_PER_SECOND
from gateway.console.recording.recorded_calls import CallFilter, RecordedCalls
from gateway.console.reports.limits import limits_report
from gateway.console.reports.sessions import OpenSessions, end_session, sessions_report
from gateway.json_types import Json, JsonObject
from gateway.protocol.dispatcher import Dispatcher
from gateway.rfc3339 import timestamp
from gateway.telemetry.health import Health
from gateway.transports.errors import HttpError
from gateway.transports.http_server import HttpServer
from gateway.upstreams.server import UpstreamServer
from gateway.upstreams.source import UpstreamSource

_UNKNOWN: Final = HttpError(status=404, message="Unknown upstream")


def upstreams_report(upstreams: UpstreamSource, redactor: LiveRedactor) -> JsonObject:
    """Return a report for each upstream. Texts from upstreams are masked, because they can quote secrets."""
    return {"upstreams": [_facts(server, redactor) for server in upstreams.servers.values()]}


def upstream_states(upstreams: UpstreamSource) -> Mapping[str, str]:
    return {name: server.state for name, server in upstreams.servers.items()}


def reconnect(upstreams: UpstreamSource, name: str) -> HttpError | None:
    server = upstreams.servers.get(name)
    if server is None:
        return _UNKNOWN
    server.reconnect()
    return None


def _facts(server: UpstreamServer, redactor: LiveRedactor) -> dict[str, Json]:
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
        "errors": [{"at": timestamp(each.at), "message": masked(each.message)} for each in pool.circuit.failures],
        "stderr": None if said is None else masked(said).splitlines(),
    }


def _next_try(at: float) -> str | None:
    seconds = at - time.monotonic()
    return timestamp(time.time() + seconds) if seconds > 0 else None


def _server_info(info: JsonObject) -> JsonObject | None:
    name = info.get("name")
    return {"name": name, "version": info.get("version")} if isinstance(name, str) else None


AskOthers = Callable[[str, str], Awaitable[Sequence[Json]]]
"""Sends a method and a path to the other workers (see `ThisWorker.answer`), and returns their non-empty responses."""


class ThisWorker:
    def __init__(  # noqa: PLR0913 - the parts of the daemon that the console shows
        self,
        calls: RecordedCalls,
        *,
        dispatcher: Dispatcher,
        upstreams: UpstreamSource,
        http: HttpServer,
        open_sessions: OpenSessions,
        health: Health,
        redactor: LiveRedactor,
    ) -> None:
        self._calls: Final = calls
        self._dispatcher: Final = dispatcher
        self._upstreams: Final = upstreams
        self._http: Final = http
        self._open_sessions: Final = open_sessions
        self._health: Final = health
        self._answers: Final[Mapping[str, Callable[[str, Mapping[str, str]], Json]]] = {
            "GET calls": lambda _, query: calls.listed(CallFilter.parse(query)),
            "GET calls/": lambda name, _: self._call(name),
            "GET sessions": lambda _, _query: sessions_report(open_sessions, http, calls, redactor),
            "DELETE sessions/": lambda name, _: self._end_session(name),
            "GET upstreams": lambda _, _query: upstreams_report(upstreams, redactor),
            "POST upstreams/": lambda name, _: self._reconnect(name),
            "GET limits": lambda _, _query: limits_report(dispatcher, http, calls, redactor),
            "GET rates": lambda _, _query: calls.rates.as_json(),
            "GET news": lambda _, query: self.news(int(query["since"])),
        }
        """By method and path. A path with a name ends with `/`."""

    async def answer(self, method: str, path: str, query: Mapping[str, str]) -> Json:
        """Handle a request of another worker. Return None for unknown names.

        Raises:
            ValueError: the path or the query is malformed.
        """
        what, has_name, name = path.partition("/")
        try:
            found = self._answers[f"{method} {what}/" if has_name else f"{method} {what}"](name, query)
        except KeyError as error:
            raise ValueError(f"{method} {path}") from error
        return await found if isinstance(found, Awaitable) else found

    def _call(self, name: str) -> Json:
        record = self._calls.find(int(name))
        return None if record is None else record.detail()

    async def _end_session(self, name: str) -> Json:
        # None for a refusal, because another worker can have the session.
        return await self.end_session(name) is None or None

    def _reconnect(self, name: str) -> Json:
        return reconnect(self._upstreams, name) is None or None

    async def end_session(self, name: str) -> HttpError | None:
        return await end_session(self._open_sessions, self._http, name)

    def status(self) -> JsonObject:
        concurrency, counts = self._dispatcher.concurrency, self._dispatcher.tasks.store.counts
        return {
            "state": self._health.state,
            "generation": self._dispatcher.store.current.generation,
            "callsRunning": concurrency.running,
            "callsWaiting": concurrency.waiting,
            "sessions": sum(1 for _ in self._open_sessions()),
            "streams": len(self._http.limits.streams),
            "tasks": {str(status): count for status, count in counts.items() if count},
            "upstreams": dict(upstream_states(self._upstreams)),
            "upstreamsDown": sum(bool(server.pool.circuit.reason) for server in self._upstreams.servers.values()),
            "rate": self._calls.rates.last_seconds(),
        }

    def news(self, since: int) -> JsonObject:
        """Return the status, and the latest calls that started or ended after a number."""
        found = self._calls.since(since)
        shown = found[-2 * CALLS_PER_SECOND :]
        return {
            "status": self.status(),
            "calls": [[number, record.summary()] for number, record in shown],
            "skipped": len(found) - len(shown),
        }
