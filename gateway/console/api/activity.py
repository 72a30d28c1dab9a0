"""Console API routes for the calls, sessions, upstreams, limits and events of all workers."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import quote

import msgspec
from aiohttp import web

from gateway.console.call_rates import intervals_of
from gateway.console.console import READ, Route
from gateway.console.event_endpoint import EventEndpoint
from gateway.console.event_feed import EventFeed
from gateway.console.recorded_calls import CallFilter
from gateway.console.responses import error_response, json_response, no_content, short_id
from gateway.console.this_worker import NO_SESSION, AskOthers, ThisWorker, merged_limits
from gateway.events import Events, SessionEnded, SessionOpened
from gateway.json_types import Json, JsonObject
from gateway.tasks.runner import TaskChanged, TaskProgressed
from gateway.transports.errors import HttpError
from gateway.transports.http.request import HttpRequest

_UNITS: Final = {"unread": "bytes", "concurrency": "calls"}
_NO_CALL: Final = HttpError(status=404, message="Unknown call. Only the latest calls are kept")


class ActivityApi(msgspec.Struct, frozen=True, kw_only=True):
    feed: EventFeed
    stream: EventEndpoint
    own: ThisWorker
    status: Callable[[], Awaitable[JsonObject]]
    """Returns the status of all workers, with secrets masked."""
    ask_others: AskOthers

    def subscribe(self, events: Events) -> None:
        events.subscribe(TaskChanged, self._task_changed)
        events.subscribe(TaskProgressed, self._task_progressed)
        events.subscribe(SessionOpened, self._session_opened)
        events.subscribe(SessionEnded, self._session_ended)

    def routes(self) -> Iterator[Route]:
        yield "/calls", READ, self._list_calls
        yield "/calls/{seq}", READ, self._show_call
        yield "/sessions", READ, self._list_sessions
        yield "/sessions/{id}", ("DELETE",), self._end_session
        yield "/upstreams", READ, self._list_upstreams
        yield "/upstreams/{name}/reconnect", ("POST",), self._reconnect
        yield "/limits", READ, self._list_limits
        yield "/events", ("GET",), self.stream.answer

    async def rates(self) -> JsonObject:
        others = await self.ask_others("GET", "rates")
        return self.own.calls.rates.shown(map(intervals_of, others))

    def _task_changed(self, event: TaskChanged) -> None:
        self.feed.publish("task", {"taskId": event.task.id, "status": event.task.status.value})

    def _task_progressed(self, event: TaskProgressed) -> None:
        task = event.task
        # Progress can arrive many times per second, so messages are masked only if a page is watching.
        if len(self.feed):
            message = self.own.redactor.text(task.message)
            self.feed.publish("task", {"taskId": task.id, "status": task.status.value, "message": message})

    async def _list_calls(self, request: HttpRequest) -> web.Response:
        try:
            wanted = CallFilter.parse(request.raw.query)
        except ValueError as error:
            return error_response(HttpError(status=400, message=str(error)), request)
        # The query stays percent-encoded, because a decoded `#` would start a fragment.
        others = await self.ask_others("GET", f"calls?{request.raw.rel_url.raw_query_string}")
        return json_response(_merged_calls([self.own.calls.listed(wanted), *others], wanted), request)

    async def _show_call(self, request: HttpRequest) -> web.Response:
        found: Json = None
        with suppress(ValueError):
            path = f"calls/{int(request.raw.match_info['seq'])}"
            # Only ask other workers if necessary, because a worker that hangs would delay the response.
            found = await self.own.answer("GET", path, {}) or next(iter(await self.ask_others("GET", path)), None)
        return error_response(_NO_CALL, request) if found is None else json_response(found, request)

    async def _list_sessions(self, request: HttpRequest) -> web.Response:
        sessions, status = await self._everywhere("sessions"), await self.status()
        return json_response({**_merged_sessions(sessions), "clients": status["clients"]}, request)

    async def _end_session(self, request: HttpRequest) -> web.Response:
        name = request.raw.match_info["id"]
        error = await self.own.end_session(name)
        # The session can belong to another worker, because HTTP+SSE binds a session to the process of its stream.
        if error is NO_SESSION and await self.ask_others("DELETE", f"sessions/{quote(name, safe='')}"):
            error = None
        return no_content(request) if error is None else error_response(error, request)

    async def _list_upstreams(self, request: HttpRequest) -> web.Response:
        return json_response(_merged_upstreams(await self._everywhere("upstreams")), request)

    async def _reconnect(self, request: HttpRequest) -> web.Response:
        """Reconnect an upstream in every worker, because each worker has its own connections."""
        name = request.raw.match_info["name"]
        error = self.own.reconnect(name)
        if error is not None:
            return error_response(error, request)
        await self.ask_others("POST", f"upstreams/{quote(name, safe='')}")
        return json_response({"name": name}, request, status=202)

    async def _list_limits(self, request: HttpRequest) -> web.Response:
        limits, status = await self._everywhere("limits"), await self.status()
        answer = {"quotas": _quotas(status), **merged_limits(limits), "refused": status["refused"]}
        return json_response(answer, request)

    async def _everywhere(self, path: str) -> list[Json]:
        own = await self.own.answer("GET", path, {})
        return [own, *await self.ask_others("GET", path)]

    def _session_opened(self, event: SessionOpened) -> None:
        self.feed.publish("session", {"change": "opened", "id": short_id(event.session_id)})

    def _session_ended(self, event: SessionEnded) -> None:
        self.own.calls.session_ended(event.session_id)
        self.feed.publish("session", {"change": "ended", "id": short_id(event.session_id)})


def _merged_calls(found: Sequence[JsonObject], wanted: CallFilter) -> JsonObject:
    """Merge the call lists of several workers, whose sequence numbers are unique and increase with time."""
    calls = sorted((call for each in found for call in each["calls"]), key=lambda call: call["seq"])
    oldest = [each["oldest"] for each in found if each["oldest"] is not None]
    newest = [each["newest"] for each in found if each["newest"] is not None]
    return {
        "calls": calls[: wanted.limit] if wanted.after is not None else calls[-wanted.limit :],
        "oldest": min(oldest, default=None),
        "newest": max(newest, default=None),
    }


def _merged_sessions(found: Sequence[JsonObject]) -> JsonObject:
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


def _merged_upstreams(found: Sequence[JsonObject]) -> JsonObject:
    """List the upstreams of each worker separately, because each worker has its own connections."""
    if len(found) == 1:
        return found[0]
    entries = [{**entry, "worker": at} for at, each in enumerate(found) for entry in each["upstreams"]]
    return {"upstreams": sorted(entries, key=lambda entry: (entry["name"], entry["worker"]))}


def _quotas(status: JsonObject) -> list[JsonObject]:
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
