"""Distributes events to the open pages of the console, and does nothing while no page is open.

Each event is encoded once. Calls are sampled, because a page cannot show hundreds of calls per second. Event ids are
sequence numbers, so that the server can resume a stream from the recorded calls and reloads.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import orjson

from gateway.console.call_record import CallRecord
from gateway.json_types import Json, JsonObject
from gateway.transports.sse.response_channel import encode_event

_UNITS_PER_SECOND: Final = 100_000
_WORKERS: Final = 32
"""A sequence number modulo 32 identifies the worker. Numbers stay below 2**53, the limit of JavaScript, until 2059."""
MAX_WATCHERS: Final = 20
CALLS_PER_SECOND: Final = 50
MAX_CALLS: Final = 500
"""Maximum queued calls for a slow client. Further calls are skipped, and the client receives a count."""
MAX_OTHERS: Final = 500
"""Maximum queued events that are not calls. A client with more events is disconnected and can resume the stream."""


class EventQueue:
    def __init__(self, *, wants_calls: bool) -> None:
        self.wants_calls: Final = wants_calls
        self._calls = 0
        self._skipped = 0
        self._events: dict[object, bytes] = {}
        """The queued events in order. A state event has its kind as the key, and other events a sequence number."""
        self._woken: asyncio.Event = asyncio.Event()
        self._is_ending = False
        self.is_lost = False

    def put(self, key: object, event: bytes) -> None:
        """Queue an event. A queued event with the same key is replaced."""
        if key not in self._events and len(self._events) - self._calls >= MAX_OTHERS:
            self.is_lost = True
            self.end()
            return
        # Remove a replaced event, so that the new event is queued last. Event numbers must increase.
        self._events.pop(key, None)
        self._events[key] = event
        self._woken.set()

    def put_call(self, number: int, event: bytes) -> None:
        # A skipped call needs no disconnect, because the stream reports the number of skipped calls to the page.
        if self._calls >= MAX_CALLS:
            self._skipped += 1
            return
        self._calls += 1
        self._events[number] = event
        self._woken.set()

    def skip(self, count: int) -> None:
        self._skipped += count
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
        return b"".join([*events.values(), *([skipped_event(skipped)] if skipped else [])])


class EventFeed:
    def __init__(self, *, worker: int = 0, clock: Callable[[], float] = time.time) -> None:
        self._worker: Final = worker % _WORKERS
        self._clock: Final = clock
        self._last = 0
        self._queues: Final[list[EventQueue]] = []
        self._second = 0
        self._told = 0
        self._left_out = 0
        self._is_draining = False

    def __len__(self) -> int:
        return len(self._queues)

    def next_number(self) -> int:
        """Return a new sequence number, which is greater than all earlier numbers of this worker."""
        self._last = max(self._last + 1, int(self._clock() * _UNITS_PER_SECOND))
        return self._last * _WORKERS + self._worker

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

    def publish(self, kind: str, value: JsonObject, *, number: int | None = None, is_state: bool = False) -> None:
        """Send an event to all watchers. With `is_state`, a queued event of the same kind is replaced."""
        if not self._queues:
            return
        number = self.next_number() if number is None else number
        event = framed(kind, value, number)
        for queue in self._queues:
            queue.put(kind if is_state else number, event)

    def call_began(self, record: CallRecord) -> None:
        second = int(self._clock())
        if second != self._second:
            self._second, self._told = second, 0
        self._told += 1
        if self._told > CALLS_PER_SECOND:
            record.leave_out()
            self._left_out += 1
            return
        self.publish_call(record.summary(), record.seq)

    def publish_call(self, call: JsonObject, number: int) -> None:
        """Send a call to the watchers of calls, with the sequence number of the start or end of the call."""
        event = framed("call", call, number)
        for queue in self._queues:
            if queue.wants_calls:
                queue.put_call(number, event)

    def tell_left_out(self, *, elsewhere: int = 0) -> None:
        """Tell the watchers how many calls were skipped. `elsewhere` counts the calls of other workers."""
        count, self._left_out = self._left_out + elsewhere, 0
        for queue in self._queues if count else ():
            if queue.wants_calls:
                queue.skip(count)

    def drain(self) -> None:
        """Announce to all watchers that the daemon stops, and end all event streams."""
        self._is_draining = True
        self.publish("draining", {})
        for queue in self._queues:
            queue.end()


def framed(kind: str, value: Json, number: int) -> bytes:
    return encode_event(orjson.dumps(value), kind=kind, event_id=b"%d" % number)


def skipped_event(count: int) -> bytes:
    return encode_event(b'{"count":%d}' % count, kind="calls-skipped")
