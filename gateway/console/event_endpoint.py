"""`/-/api/events` sends an event stream to a page of the console.

Threats handled here: too many streams (429), clients that do not read (a client with a full queue is disconnected), and
streams that outlive the credential of the client.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import structlog
from aiohttp import web

from gateway import __version__
from gateway.console.event_feed import MAX_WATCHERS, EventFeed, framed, skipped_event
from gateway.console.reload_history import ReloadHistory
from gateway.console.responses import error_response, number_of
from gateway.console.this_worker import AskOthers, ThisWorker
from gateway.json_types import JsonObject
from gateway.rfc3339 import timestamp
from gateway.transports.errors import RETRY, HttpError
from gateway.transports.http.active_requests import ActiveRequests
from gateway.transports.http.request import HttpRequest
from gateway.transports.quota import RequestLimits
from gateway.transports.sse.response_channel import ResponseChannel

log: Final = structlog.get_logger(__name__)

TICK_SECONDS: Final = 2.0
KEEPALIVE_SECONDS: Final = 15.0
_FIELDS: Final = {"Cache-Control": "no-store, no-transform"}
"""`no-transform` prevents proxies from compressing and buffering the stream."""
_RETRY: Final = b"retry: 2000\n\n"
_BETWEEN_WRITES: Final = 0.05
_MAX_REPLAYED: Final = 200
"""Maximum calls at the start of a resumed stream. The page requests older calls from `/-/api/calls`."""
_TOO_MANY_STREAMS: Final = HttpError(
    status=429, message=f"The limit of {MAX_WATCHERS} open event streams is reached", headers=RETRY
)
_SUMMED: Final = ("callsRunning", "callsWaiting", "sessions", "streams")


class EventEndpoint:
    """Sends event streams. While a stream is open, a task publishes the status of all workers regularly."""

    def __init__(
        self,
        feed: EventFeed,
        *,
        own: ThisWorker,
        ask_others: AskOthers,
        reloads: ReloadHistory,
        active_requests: ActiveRequests,
    ) -> None:
        self._feed: Final = feed
        self._own: Final = own
        self._ask_others: Final = ask_others
        self._reloads: Final = reloads
        self._active_requests: Final = active_requests
        self._started: Final = timestamp(time.time())
        self._limits: Final = RequestLimits(keepalive=KEEPALIVE_SECONDS)
        self._states: Mapping[str, str] = {}
        self._heard = 0
        """Calls of other workers up to this sequence number have been published."""
        self._task: asyncio.Task[None] | None = None
        self._status: JsonObject | None = None
        """The last published status, or None before the first status."""

    async def answer(self, request: HttpRequest) -> web.StreamResponse:
        if len(self._feed) >= MAX_WATCHERS:
            return error_response(_TOO_MANY_STREAMS, request)
        since = number_of(request.last_event_id) or number_of(request.raw.query.get("since"))
        wants_calls = request.raw.query.get("calls") != "0"
        stream = ResponseChannel(request, limits=self._limits, headers={**request.response_headers, **_FIELDS})
        # Register the stream as a request, so that a reload can end the stream and a drain waits for its end.
        active, task = self._active_requests, request.task
        active.begin(task, request.identity)
        active.begin_stream(task, request.identity)
        try:
            with self._publishing_status(), self._feed.watch(wants_calls=wants_calls) as queue:
                await stream.write(b"".join([_RETRY, self._hello(), *self._missed(since, wants_calls=wants_calls)]))
                while (events := await queue.get()) is not None:
                    await stream.write(events)
                    await asyncio.sleep(_BETWEEN_WRITES)
            if queue.is_lost:
                # Abort the stream instead of ending it, so that EventSource reconnects with the last id.
                stream.abort()
            return await stream.end()
        finally:
            stream.stop()
            active.end(task)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _hello(self) -> bytes:
        hello: JsonObject = {
            "api": 1,
            "version": __version__,
            "generation": self._own.dispatcher.store.current.generation,
            "started": self._started,
        }
        events = framed("hello", hello, self._feed.next_number())
        status = self._status
        return events if status is None else events + framed("status", status, self._feed.next_number())

    def _missed(self, since: int | None, *, wants_calls: bool) -> Iterator[bytes]:
        if since is None:
            return
        for number, reload in self._reloads.since(since):
            yield framed("reload", reload, number)
        calls = self._own.calls.since(since) if wants_calls else []
        if len(calls) > _MAX_REPLAYED:
            yield skipped_event(len(calls) - _MAX_REPLAYED)
        for number, record in calls[-_MAX_REPLAYED:]:
            yield framed("call", record.summary(), number)

    @contextmanager
    def _publishing_status(self) -> Iterator[None]:
        if self._task is None:
            self._states, self._heard = self._own.upstream_states(), self._feed.next_number()
            self._task = asyncio.get_running_loop().create_task(self._publish_status(), name="console status")
        try:
            yield
        finally:
            if not len(self._feed) and self._task is not None:
                self._task.cancel()
                self._task = self._status = None

    async def _publish_status(self) -> None:
        while True:
            try:
                await self._publish()
            except Exception:  # Boundary: one failure must not stop later events
                log.exception("console status failed")
            await asyncio.sleep(TICK_SECONDS)

    async def _publish(self) -> None:
        states = self._own.upstream_states()
        for name, state in states.items():
            if self._states.get(name) != state:
                self._feed.publish("upstream", {"name": name, "state": state})
        self._states = states
        # Take the number before asking other workers, so that calls during the request are published by the next tick.
        since, self._heard = self._heard, self._feed.next_number()
        others = await self._ask_others("GET", f"news?since={since}")
        calls = sorted((call for each in others for call in each["calls"]), key=lambda call: call[0])
        for number, call in calls:
            self._feed.publish_call(call, number)
        self._feed.tell_left_out(elsewhere=sum(each["skipped"] for each in others))
        self._status = _merged_status(self._own.status(), [each["status"] for each in others])
        self._feed.publish("status", self._status, is_state=True)


def _merged_status(own: JsonObject, others: Sequence[JsonObject]) -> JsonObject:
    """Merge the `status` events of all workers. Counts are summed, and other members are copied from this worker."""
    every = [own, *others]
    return {
        **own,
        **{name: sum(each[name] for each in every) for name in _SUMMED},
        "rate": {name: sum(each["rate"][name] for each in every) for name in ("calls", "errors")},
    }
