"""Tells watchers every two seconds how things are, while there are watchers."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from gateway.console.events.feed import EventFeed
from gateway.json_types import JsonObject

log: Final = structlog.get_logger(__name__)

TICK_SECONDS: Final = 2.0


class Ticker:
    """A task that runs while somebody watches."""

    def __init__(
        self, feed: EventFeed, *, status: Callable[[], JsonObject], upstreams: Callable[[], Mapping[str, str]]
    ) -> None:
        """Do nothing yet.

        Args:
            feed: is told.
            status: the event `status`.
            upstreams: the state of each upstream, by name.
        """
        self._feed: Final = feed
        self._status: Final = status
        self._upstreams: Final = upstreams
        self._states: Mapping[str, str] = {}
        self._task: asyncio.Task[None] | None = None

    def watching_changed(self) -> None:
        """Begin with the first watcher, and end with the last."""
        if len(self._feed) and self._task is None:
            self._states = self._upstreams()
            self._task = asyncio.get_running_loop().create_task(self._run(), name="console status")
        elif not len(self._feed) and self._task is not None:
            self._task.cancel()
            self._task = None

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                self._tell()
            except Exception:  # Boundary: a bug in a fact must not silence the others.
                log.exception("console status failed")
            await asyncio.sleep(TICK_SECONDS)

    def _tell(self) -> None:
        states = self._upstreams()
        for name, state in states.items():
            if self._states.get(name) != state:
                self._feed.publish("upstream", {"name": name, "state": state})
        self._states = states
        self._feed.tell_left_out()
        self._feed.publish("status", self._status(), is_state=True)
