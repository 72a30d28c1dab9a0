"""The records of this process, for the API and for other workers."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from gateway.config.secrets.redactor import LiveRedactor
from gateway.console.recording.call_filter import CallFilter
from gateway.console.recording.event_feed import CALLS_PER_SECOND
from gateway.console.recording.recorded_calls import RecordedCalls
from gateway.console.reports.limits import limits_report
from gateway.console.reports.sessions import OpenSessions, end_session, sessions_report
from gateway.console.reports.upstreams import reconnect, upstream_states, upstreams_report
from gateway.json_types import Json, JsonObject
from gateway.protocol.dispatcher import Dispatcher
from gateway.telemetry.health import Health
from gateway.transports.errors import HttpError
from gateway.transports.http_server import HttpServer
from gateway.upstreams.source import UpstreamSource

AskOthers = Callable[[str, str], Awaitable[Sequence[Json]]]
"""Sends a method and a path to the other workers (see `ThisWorker.answer`), and returns their non-empty responses."""


class ThisWorker:
    """The records of this process."""

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
        """End the session with this short id, or return the reason for a refusal."""
        return await end_session(self._open_sessions, self._http, name)

    def status(self) -> JsonObject:
        """Return the event `status`."""
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
            "rate": self._calls.rates.last_seconds(),
        }

    def news(self, since: int) -> JsonObject:
        """Return the status, and the latest calls that started or ended after a number."""
        found = self._calls.since(since)
        # Two seconds of calls, the interval of the ticker.
        shown = found[-2 * CALLS_PER_SECOND :]
        return {
            "status": self.status(),
            "calls": [[number, record.summary()] for number, record in shown],
            "skipped": len(found) - len(shown),
        }
