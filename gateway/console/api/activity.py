"""The activity of a daemon, of all its workers: calls, sessions, upstreams, limits, and the stream of events."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import quote

from aiohttp import web

from gateway.console.console import Route
from gateway.console.daemon import Daemon
from gateway.console.event_endpoint import EventEndpoint
from gateway.console.json_forms import short_id
from gateway.console.recording.call_filter import CallFilter
from gateway.console.recording.call_rates import intervals_of
from gateway.console.recording.event_feed import EventFeed
from gateway.console.recording.recorded_calls import RecordedCalls
from gateway.console.recording.reload_history import ReloadHistory
from gateway.console.reports.limits import quotas
from gateway.console.reports.merging import merged_calls, merged_limits, merged_sessions, merged_upstreams
from gateway.console.reports.sessions import NO_SESSION, end_session
from gateway.console.reports.this_worker import ThisWorker
from gateway.console.reports.upstreams import reconnect
from gateway.console.responses import error_response, json_response, no_content
from gateway.console.status_ticker import StatusTicker
from gateway.events import Events, SessionEnded, SessionOpened
from gateway.json_types import Json, JsonObject
from gateway.reload.reloader import ReloadAttempt
from gateway.tasks.runner import TaskChanged, TaskProgressed
from gateway.transports.errors import HttpError
from gateway.transports.http.request import HttpRequest

_NO_CALL: Final = HttpError(status=404, message="There is no such call (any more): the newest are remembered")


class ActivityApi:
    """The routes `/calls`, `/sessions`, `/upstreams`, `/limits` and `/events`."""

    def __init__(self, daemon: Daemon, calls: RecordedCalls, *, events: Events) -> None:
        """Take the parts of this process; `calls` are recorded already. `events` report reloads, sessions and tasks."""
        self._daemon: Final = daemon
        self._calls: Final = calls
        self._feed: Final = EventFeed(calls.numbers, watching_changed=self._watching_changed)
        self._history: Final = ReloadHistory(daemon.pipeline, self._feed)
        self.own: Final = ThisWorker(daemon, calls)
        self._ticker: Final = StatusTicker(self._feed, daemon, own=self.own)
        self._events: Final = EventEndpoint(self._feed, daemon, calls=calls, reloads=self._history)

        self._history.start(daemon.reloader.status)
        events.subscribe(ReloadAttempt, self._history.attempted)
        events.subscribe(TaskChanged, self._task_changed)
        events.subscribe(TaskProgressed, self._task_progressed)
        events.subscribe(SessionOpened, self._session_opened)
        events.subscribe(SessionEnded, self._session_ended)

    def drain(self) -> None:
        """End the streams: the daemon stops."""
        self._feed.drain()

    async def close(self) -> None:
        await self._ticker.close()
        await self._history.close()

    def routes(self) -> Iterator[Route]:
        yield Route(path="/calls", endpoint=self._list_calls)
        yield Route(path="/calls/{seq}", endpoint=self._show_call)
        yield Route(path="/sessions", endpoint=self._list_sessions)
        yield Route(path="/sessions/{id}", endpoint=self._end_session, methods=("DELETE",))
        yield Route(path="/upstreams", endpoint=self._list_upstreams)
        yield Route(path="/upstreams/{name}/reconnect", endpoint=self._reconnect, methods=("POST",))
        yield Route(path="/limits", endpoint=self._list_limits)
        yield Route(path="/events", endpoint=self._events.answer, methods=("GET",))

    async def rates(self) -> JsonObject:
        others = await self._daemon.ask_others("GET", "rates")
        return self._calls.rates.shown(map(intervals_of, others))

    def reloads(self) -> Sequence[JsonObject]:
        return self._history.listed()

    def _task_changed(self, event: TaskChanged) -> None:
        self._feed.publish("task", {"taskId": event.task.id, "status": event.task.status.value})

    def _task_progressed(self, event: TaskProgressed) -> None:
        task = event.task
        # Progress may come many times a second: it is masked only for somebody who watches.
        if len(self._feed):
            message = self._daemon.pipeline.redactor.text(task.message)
            self._feed.publish("task", {"taskId": task.id, "status": task.status.value, "message": message})

    async def _list_calls(self, request: HttpRequest) -> web.Response:
        try:
            wanted = CallFilter.parse(request.raw.query)
        except ValueError as error:
            return error_response(HttpError(status=400, message=str(error)), request.response_headers)
        # As it came: decoded, a `#` in it would end it.
        others = await self._daemon.ask_others("GET", f"calls?{request.raw.rel_url.raw_query_string}")
        return json_response(merged_calls([self._calls.listed(wanted), *others], wanted), request)

    async def _show_call(self, request: HttpRequest) -> web.Response:
        found: Json = None
        with suppress(ValueError):
            path = f"calls/{int(request.raw.match_info['seq'])}"
            # Others are asked for what is not here alone: one that hangs would hold the answer.
            found = await self.own.answer("GET", path, {}) or next(
                iter(await self._daemon.ask_others("GET", path)), None
            )
        return error_response(_NO_CALL, request.response_headers) if found is None else json_response(found, request)

    async def _list_sessions(self, request: HttpRequest) -> web.Response:
        sessions, status = await self._everywhere("sessions"), await self._daemon.status()
        return json_response({**merged_sessions(sessions), "clients": status["clients"]}, request)

    async def _end_session(self, request: HttpRequest) -> web.Response:
        name = request.raw.match_info["id"]
        error = await end_session(self._daemon, name)
        # It may be another worker's: HTTP+SSE binds a session to the process that has its stream.
        if error is NO_SESSION and await self._daemon.ask_others("DELETE", f"sessions/{quote(name, safe='')}"):
            error = None
        return no_content(request) if error is None else error_response(error, request.response_headers)

    async def _list_upstreams(self, request: HttpRequest) -> web.Response:
        return json_response(merged_upstreams(await self._everywhere("upstreams")), request)

    async def _reconnect(self, request: HttpRequest) -> web.Response:
        """Have every worker connect anew: each has connections of its own."""
        name = request.raw.match_info["name"]
        error = reconnect(self._daemon, name)
        if error is not None:
            return error_response(error, request.response_headers)
        await self._daemon.ask_others("POST", f"upstreams/{quote(name, safe='')}")
        return json_response({"name": name}, request, status=202)

    async def _list_limits(self, request: HttpRequest) -> web.Response:
        limits, status = await self._everywhere("limits"), await self._daemon.status()
        answer = {"quotas": quotas(status), **merged_limits(limits), "refused": status["refused"]}
        return json_response(answer, request)

    async def _everywhere(self, path: str) -> list[Json]:
        """The answers of all workers, this one's first."""
        own = await self.own.answer("GET", path, {})
        return [own, *await self._daemon.ask_others("GET", path)]

    def _watching_changed(self) -> None:
        self._calls.feed = self._feed if self._feed.wants_calls else None
        self._ticker.watching_changed()

    def _session_opened(self, event: SessionOpened) -> None:
        self._feed.publish("session", {"change": "opened", "id": short_id(event.session_id)})

    def _session_ended(self, event: SessionEnded) -> None:
        self._calls.session_ended(event.session_id)
        self._feed.publish("session", {"change": "ended", "id": short_id(event.session_id)})
