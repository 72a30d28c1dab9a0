"""Distributes events to the open pages of the console, and does nothing while no page is open.

Each event is encoded once. The streams cannot be resumed: a page that reconnects requests its lists again.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import orjson

from gateway.json_types import Json, JsonObject
from gateway.transports.sse.response_channel import encode_event

MAX_WATCHERS: Final = 20
MAX_CALLS: Final = 500
"""Maximum queued calls for a slow client. Further calls are skipped, and the client receives a count."""
MAX_OTHERS: Final = 500
"""Maximum queued events that are not calls. A client with more events is disconnected."""


class EventQueue:
    def __init__(self, *, wants_calls: bool) -> None:
        self.wants_calls: Final = wants_calls
        self._calls = 0
        self._skipped = 0
        self._events: dict[object, bytes] = {}
        """The queued events in order. A state event has its kind as the key, and other events a unique object."""
        self._woken: asyncio.Event = asyncio.Event()
        self._is_ending = False
        self.is_lost = False

    def put(self, event: bytes, *, state: str | None = None) -> None:
        """Queue an event. A queued event of the same `state` is replaced."""
        key = object() if state is None else state
        if key not in self._events and len(self._events) - self._calls >= MAX_OTHERS:
            self.is_lost = True
            self.end()
            return
        self._events[key] = event
        self._woken.set()

    def put_calls(self, events: Sequence[bytes], *, skipped: int) -> None:
        # Skipped calls need no disconnect, because the stream reports their number to the page.
        taken = events[: MAX_CALLS - self._calls]
        self._calls += len(taken)
        self._skipped += skipped + len(events) - len(taken)
        self._events |= {object(): event for event in taken}
        self._woken.set()

    def end(self) -> None:
        """Make `get` return the remaining events, and then None."""
        self._is_ending = True
        self._woken.set()

    async def get(self) -> bytes | None:
        while not self._events and not self._skipped:
            if self._is_ending:
                return None
            self._woken.clear()
            await self._woken.wait()
        events, self._events = self._events, {}
        skipped, self._skipped, self._calls = self._skipped, 0, 0
        return b"".join([*events.values(), *([framed("calls-skipped", {"count": skipped})] if skipped else [])])


class EventFeed:
    def __init__(self) -> None:
        self._queues: Final[list[EventQueue]] = []
        self._is_draining = False

    def __len__(self) -> int:
        return len(self._queues)

    @property
    def wants_calls(self) -> bool:
        return any(each.wants_calls for each in self._queues)

    @contextmanager
    def watch(self, *, wants_calls: bool = True) -> Iterator[EventQueue]:
        queue = EventQueue(wants_calls=wants_calls)
        if self._is_draining:
            queue.end()
        self._queues.append(queue)
        try:
            yield queue
        finally:
            self._queues.remove(queue)

    def publish(self, kind: str, value: JsonObject, *, is_state: bool = False) -> None:
        """Send an event to all watchers. With `is_state`, a queued event of the same kind is replaced."""
        if not self._queues:
            return
        event = framed(kind, value)
        for queue in self._queues:
            queue.put(event, state=kind if is_state else None)

    def publish_calls(self, calls: Sequence[JsonObject], *, skipped: int) -> None:
        """Send calls and the number of skipped calls to the watchers of calls."""
        events = [framed("call", call) for call in calls]
        for queue in self._queues:
            if queue.wants_calls:
                queue.put_calls(events, skipped=skipped)

    def drain(self) -> None:
        """Announce to all watchers that the daemon stops, and end all event streams."""
        self._is_draining = True
        self.publish("draining", {})
        for queue in self._queues:
            queue.end()


def framed(kind: str, value: Json) -> bytes:
    return encode_event(orjson.dumps(value), kind=kind)
