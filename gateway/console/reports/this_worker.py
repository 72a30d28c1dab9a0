"""The records of this process, as it shows them and as other workers of the daemon ask for them."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from gateway.console.daemon import Daemon
from gateway.console.recording.call_filter import CallFilter
from gateway.console.recording.event_feed import CALLS_PER_SECOND
from gateway.console.recording.recorded_calls import RecordedCalls
from gateway.console.reports.limits import limits_report
from gateway.console.reports.sessions import end_session, sessions_report
from gateway.console.reports.upstreams import reconnect, upstream_states, upstreams_report
from gateway.json_types import Json, JsonObject


class ThisWorker:
    """The records of this process alone."""

    def __init__(self, daemon: Daemon, calls: RecordedCalls) -> None:
        self._calls: Final = calls
        self._daemon: Final = daemon
        self._answers: Final[Mapping[str, Callable[[str, Mapping[str, str]], Json]]] = {
            "GET calls": lambda _, query: calls.listed(CallFilter.parse(query)),
            "GET calls/": lambda name, _: self._call(name),
            "GET sessions": lambda _, _query: sessions_report(daemon, calls),
            "DELETE sessions/": lambda name, _: self._end_session(name),
            "GET upstreams": lambda _, _query: upstreams_report(daemon),
            "POST upstreams/": lambda name, _: self._reconnect(name),
            "GET limits": lambda _, _query: limits_report(daemon, calls),
            "GET rates": lambda _, _query: calls.rates.as_json(),
            "GET news": lambda _, query: self.news(int(query["since"])),
        }
        """By the method and the path, and with `/` where a name follows."""

    async def answer(self, method: str, path: str, query: Mapping[str, str]) -> Json:
        """Answer another worker; None where there is nothing of that name.

        Raises:
            ValueError: the path or the query is none.
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
        # None for a refusal: `AskOthers` leaves that out, and another worker may have the session.
        return await end_session(self._daemon, name) is None or None

    def _reconnect(self, name: str) -> Json:
        return reconnect(self._daemon, name) is None or None

    def status(self) -> JsonObject:
        """Return the event `status`."""
        daemon, http = self._daemon, self._daemon.http()
        concurrency, counts = daemon.dispatcher.concurrency, daemon.dispatcher.tasks.store.counts
        return {
            "state": daemon.state(),
            "generation": daemon.pipeline.store.current.generation,
            "callsRunning": concurrency.running,
            "callsWaiting": concurrency.waiting,
            "sessions": sum(1 for _ in daemon.open_sessions()),
            "streams": 0 if http is None else len(http.limits.streams),
            "tasks": {str(status): count for status, count in counts.items() if count},
            "upstreams": dict(upstream_states(daemon)),
            "rate": self._calls.rates.last_seconds(),
        }

    def news(self, since: int) -> JsonObject:
        """Return the status, and the calls that began or ended after a number, of many the newest."""
        found = self._calls.since(since)
        # Two seconds of them, as often as the ticker asks.
        shown = found[-2 * CALLS_PER_SECOND :]
        return {
            "status": self.status(),
            "calls": [[number, record.summary()] for number, record in shown],
            "skipped": len(found) - len(shown),
        }
