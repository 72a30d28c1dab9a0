"""Sends the status to watchers every two seconds, and calls of other workers."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import structlog

from gateway.console.recording.event_feed import EventFeed
from gateway.console.reports.merging import merged_status
from gateway.console.reports.this_worker import AskOthers, ThisWorker
from gateway.console.reports.upstreams import upstream_states
from gateway.upstreams.source import UpstreamSource

log: Final = structlog.get_logger(__name__)

TICK_SECONDS: Final = 2.0


class StatusTicker:
    """A task that runs while there are watchers."""

    def __init__(self, feed: EventFeed, *, upstreams: UpstreamSource, own: ThisWorker, ask_others: AskOthers) -> None:
        self._feed: Final = feed
        self._upstreams: Final = upstreams
        self._own: Final = own
        self._ask_others: Final = ask_others
        self._watchers = 0
        self._states: Mapping[str, str] = {}
        self._heard = 0
        """Last sequence number of calls of other workers."""
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Publish for the duration of the context."""
        self._watchers += 1
        if self._task is None:
            self._states, self._heard = upstream_states(self._upstreams), self._feed.numbers.next()
            self._task = asyncio.get_running_loop().create_task(self._run(), name="console status")
        try:
            yield
        finally:
            self._watchers -= 1
            if self._watchers == 0 and self._task is not None:
                self._task.cancel()
                self._task = None

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self._tell()
            except Exception:  # Boundary: one failure must not stop later events
                log.exception("console status failed")
            await asyncio.sleep(TICK_SECONDS)

    async def _tell(self) -> None:
        states = upstream_states(self._upstreams)
        for name, state in states.items():
            if self._states.get(name) != state:
                self._feed.publish("upstream", {"name": name, "state": state})
        self._states = states
        # Taken before other workers are asked, so that later calls belong to the next tick.
        since, self._heard = self._heard, self._feed.numbers.next()
        others = await self._ask_others("GET", f"news?since={since}")
        calls = sorted((call for each in others for call in each["calls"]), key=lambda call: call[0])
        for number, call in calls:
            self._feed.publish_call(call, number)
        self._feed.leave_out(sum(each["skipped"] for each in others))
        self._feed.tell_left_out()
        self._feed.publish(
            "status", merged_status(self._own.status(), [each["status"] for each in others]), is_state=True
        )
