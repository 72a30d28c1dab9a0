"""`/-/api/events` sends an event stream to a page of the console.

Threats handled here: too many streams (429), clients that do not read (a client with a full queue is disconnected), and
streams that outlive the credential of the client.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import structlog
from aiohttp import web

from gateway import __version__
from gateway.console.event_feed import MAX_WATCHERS, EventFeed, framed
from gateway.console.responses import error_response
from gateway.console.this_worker import AskOthers, ThisWorker
from gateway.json_types import JsonObject
from gateway.rfc3339 import timestamp
from gateway.transports.errors import RETRY, HttpError
from gateway.transports.http.active_requests import ActiveRequests
from gateway.transports.http.request import HttpRequest
from gateway.transports.quota import RequestLimits
from gateway.transports.sse.response_channel import ResponseChannel

log: Final = structlog.get_logger(__name__)

CALLS_SECONDS: Final = 0.5
"""Seconds between events for the calls of this worker."""
STATUS_SECONDS: Final = 2.0
"""Seconds between events for the status and the calls of other workers."""
KEEPALIVE_SECONDS: Final = 15.0
_FIELDS: Final = {"Cache-Control": "no-store, no-transform"}
"""`no-transform` prevents proxies from compressing and buffering the stream."""
_RETRY: Final = b"retry: 2000\n\n"
_BETWEEN_WRITES: Final = 0.05
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
        active_requests: ActiveRequests,
    ) -> None:
        self._feed: Final = feed
        self._own: Final = own
        self._ask_others: Final = ask_others
        self._active_requests: Final = active_requests
        self._started: Final = timestamp(time.time())
        self._limits: Final = RequestLimits(keepalive=KEEPALIVE_SECONDS)
        self._states: Mapping[str, str] = {}
        self._told = self._heard = 0
        """Calls of this worker, and of other workers, have been published up to these sequence numbers."""
        self._task: asyncio.Task[None] | None = None
        self._status: JsonObject | None = None
        """The last published status, or None before the first status."""

    async def answer(self, request: HttpRequest) -> web.StreamResponse:
        if len(self._feed) >= MAX_WATCHERS:
            return error_response(_TOO_MANY_STREAMS, request)
        wants_calls = request.raw.query.get("calls") != "0"
        stream = ResponseChannel(request, limits=self._limits, headers={**request.response_headers, **_FIELDS})
        # Register the stream as a request, so that a reload can end the stream and a drain waits for its end.
        active, task = self._active_requests, request.task
        active.begin(task, request.identity)
        active.begin_stream(task, request.identity)
        try:
            with self._publishing_status(), self._feed.watch(wants_calls=wants_calls) as queue:
                await stream.write(_RETRY + self._hello())
                while (events := await queue.get()) is not None:
                    await stream.write(events)
                    await asyncio.sleep(_BETWEEN_WRITES)
            if queue.is_lost:
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
        status = self._status
        return framed("hello", hello) + (b"" if status is None else framed("status", status))

    @contextmanager
    def _publishing_status(self) -> Iterator[None]:
        if self._task is None:
            self._states, self._told = self._own.upstream_states(), self._own.calls.next_number()
            self._heard = self._told
            self._task = asyncio.get_running_loop().create_task(self._publish_all(), name="console events")
        try:
            yield
        finally:
            if not len(self._feed) and self._task is not None:
                self._task.cancel()
                self._task = self._status = None

    async def _publish_all(self) -> None:
        # Use two tasks, because a worker that does not respond delays the status by seconds.
        async with asyncio.TaskGroup() as group:
            group.create_task(_repeated(self._publish_calls, seconds=CALLS_SECONDS), name="console calls")
            group.create_task(_repeated(self._publish_status, seconds=STATUS_SECONDS), name="console status")

    async def _publish_calls(self) -> None:
        since, self._told = self._told, self._own.calls.next_number()
        if self._feed.wants_calls:
            self._feed.publish_calls(**self._own.calls.since(since))

    async def _publish_status(self) -> None:
        states = self._own.upstream_states()
        for name, state in states.items():
            if self._states.get(name) != state:
                self._feed.publish("upstream", {"name": name, "state": state})
        self._states = states
        # Take the number before asking other workers, so that calls during the request are published by the next tick.
        since, self._heard = self._heard, self._own.calls.next_number()
        others = await self._ask_others("GET", f"news?since={since}")
        for each in others:
            self._feed.publish_calls(each["calls"], skipped=each["skipped"])
        self._status = _merged_status(self._own.status(), [each["status"] for each in others])
        self._feed.publish("status", self._status, is_state=True)


async def _repeated(publish: Callable[[], Awaitable[None]], *, seconds: float) -> None:
    while True:
        try:
            await publish()
        except Exception:  # Boundary: one failure must not stop later events
            log.exception("console status failed")
        await asyncio.sleep(seconds)


def _merged_status(own: JsonObject, others: Sequence[JsonObject]) -> JsonObject:
    """Merge the `status` events of all workers. Counts are summed, and other members are copied from this worker."""
    every = [own, *others]
    return {
        **own,
        **{name: sum(each[name] for each in every) for name in _SUMMED},
        "rate": {name: sum(each["rate"][name] for each in every) for name in ("calls", "errors")},
    }
