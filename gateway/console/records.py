"""The records of a daemon and their paths: calls, sessions, upstreams, limits, and the stream of events."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from aiohttp import web

from gateway.console.answers import answered, nothing, refused
from gateway.console.api_path import ApiPath
from gateway.console.events.endpoint import EventEndpoint
from gateway.console.events.feed import EventFeed
from gateway.console.events.ticker import Ticker
from gateway.console.recording.call_filter import CallFilter
from gateway.console.recording.call_record import short_id
from gateway.console.recording.recorded_calls import RecordedCalls
from gateway.console.recording.reload_history import ReloadHistory
from gateway.console.reports.daemon import Daemon
from gateway.console.reports.limits import LimitReport
from gateway.console.reports.sessions import SessionReport
from gateway.console.reports.upstreams import UpstreamReport
from gateway.json_types import JsonObject
from gateway.protocol.session import Session
from gateway.tasks.task import Task
from gateway.transports.errors import HttpError
from gateway.transports.http.active_requests import ActiveRequests
from gateway.transports.http.request import HttpRequest

_NO_CALL: Final = HttpError(status=404, message="There is no such call (any more): the newest are remembered")


class Records:
    """Answers from what is recorded. Implements `ApiPart`, `Recorded` and `TaskObserver`."""

    def __init__(self, daemon: Daemon, calls: RecordedCalls) -> None:
        """Watch the daemon, whose calls are recorded already."""
        self._daemon: Final = daemon
        self._calls: Final = calls
        self._feed: Final = EventFeed(calls.numbers)
        self._history: Final = ReloadHistory(daemon.pipeline, numbers=calls.numbers)
        self._sessions: Final = SessionReport(daemon, calls)
        self._upstreams: Final = UpstreamReport(daemon)
        self._limits: Final = LimitReport(daemon, calls)
        self._ticker: Final = Ticker(self._feed, status=self._status, upstreams=self._upstreams.states)
        self._events: Final = EventEndpoint(
            self._feed,
            calls=calls,
            reloads=self._history,
            active_requests=self._active_requests,
            generation=lambda: daemon.pipeline.store.current.generation,
            started=time.time(),
        )

    def start(self) -> None:
        """Be told of reloads, sessions and tasks from now on."""
        daemon, notifier = self._daemon, self._daemon.dispatcher.notifier
        self._feed.watching_changed = self._watching_changed
        self._history.listener = lambda number, reload: self._feed.publish("reload", reload, number=number)
        self._history.start(daemon.reloader.status)
        daemon.reloader.attempted = self._history.attempted
        daemon.dispatcher.tasks.runner.observers.append(self)
        notifier.session_opened = self._session_opened
        notifier.session_ended = _both(notifier.session_ended, self._session_ended)

    def drain(self) -> None:
        """End the streams: the daemon stops."""
        self._feed.drain()

    async def close(self) -> None:
        await self._ticker.close()
        await self._history.close()

    def paths(self) -> Iterator[ApiPath]:
        yield ApiPath(path="/calls", answer=self._list_calls)
        yield ApiPath(path="/calls/{seq}", answer=self._show_call)
        yield ApiPath(path="/sessions", answer=self._list_sessions)
        yield ApiPath(path="/sessions/{id}", answer=self._end_session, methods=("DELETE",))
        yield ApiPath(path="/upstreams", answer=self._list_upstreams)
        yield ApiPath(path="/upstreams/{name}/reconnect", answer=self._reconnect, methods=("POST",))
        yield ApiPath(path="/limits", answer=self._list_limits)
        yield ApiPath(path="/events", answer=self._events.answer, methods=("GET",))

    def rates(self) -> JsonObject:
        return self._calls.rates.shown()

    def reloads(self) -> Sequence[JsonObject]:
        return self._history.listed()

    def task_changed(self, task: Task) -> None:
        self._feed.publish("task", {"taskId": task.id, "status": task.status.value})

    def task_progressed(self, task: Task) -> None:
        if len(self._feed):
            message = self._daemon.pipeline.redactor.text(task.message)
            self._feed.publish("task", {"taskId": task.id, "status": task.status.value, "message": message})

    async def _list_calls(self, request: HttpRequest) -> web.Response:
        try:
            wanted = CallFilter.parse(request.raw.query)
        except ValueError as error:
            return refused(HttpError(status=400, message=str(error)), request.response_headers)
        return answered(self._calls.listed(wanted), request)

    async def _show_call(self, request: HttpRequest) -> web.Response:
        record = None
        with suppress(ValueError):
            record = self._calls.find(int(request.raw.match_info["seq"]))
        if record is None:
            return refused(_NO_CALL, request.response_headers)
        return answered(record.detail(), request)

    async def _list_sessions(self, request: HttpRequest) -> web.Response:
        return answered(self._sessions.listed(), request)

    async def _end_session(self, request: HttpRequest) -> web.Response:
        error = await self._sessions.end(request.raw.match_info["id"])
        return nothing(request) if error is None else refused(error, request.response_headers)

    async def _list_upstreams(self, request: HttpRequest) -> web.Response:
        return answered(self._upstreams.listed(), request)

    async def _reconnect(self, request: HttpRequest) -> web.Response:
        name = request.raw.match_info["name"]
        error = self._upstreams.reconnect(name)
        return (
            answered({"name": name}, request, status=202) if error is None else refused(error, request.response_headers)
        )

    async def _list_limits(self, request: HttpRequest) -> web.Response:
        return answered(self._limits.listed(), request)

    def _status(self) -> JsonObject:
        daemon, http = self._daemon, self._daemon.http()
        concurrency, counts = daemon.dispatcher.concurrency, daemon.dispatcher.tasks.runner.store.counts
        return {
            "state": daemon.state(),
            "generation": daemon.pipeline.store.current.generation,
            "callsRunning": concurrency.running,
            "callsWaiting": concurrency.waiting,
            "sessions": sum(1 for _ in daemon.open_sessions()),
            "streams": 0 if http is None else len(http.limits.streams),
            "tasks": {str(status): count for status, count in counts.items() if count},
            "upstreams": dict(self._upstreams.states()),
            "rate": self._calls.rates.last_seconds(),
        }

    def _watching_changed(self) -> None:
        self._calls.listener = self._feed if self._feed.wants_calls else None
        self._ticker.watching_changed()

    def _session_opened(self, session: Session) -> None:
        self._feed.publish("session", {"change": "opened", "id": short_id(session.id)})

    def _session_ended(self, session_id: str) -> None:
        self._calls.session_ended(session_id)
        self._feed.publish("session", {"change": "ended", "id": short_id(session_id)})

    def _active_requests(self) -> ActiveRequests:
        http = self._daemon.http()
        return ActiveRequests() if http is None else http.active_requests


def _both(first: Callable[[str], None], second: Callable[[str], None]) -> Callable[[str], None]:
    def both(text: str) -> None:
        first(text)
        second(text)

    return both
