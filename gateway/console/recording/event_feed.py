"""The feed of the console's events, for all watchers. With nobody watching it does nothing.

Each event is encoded once. Calls are sampled: nobody can read a page that shows two hundred a second. An id is the
number of a moment, so that a stream is resumed from what is recorded and not from a copy of what was sent.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import orjson

from gateway.console.recording.call_record import CallRecord
from gateway.console.recording.sequence_numbers import SequenceNumbers
from gateway.json_types import Json, JsonObject
from gateway.transports.sse.event_stream import encode_event

MAX_WATCHERS: Final = 20
CALLS_PER_SECOND: Final = 50
MAX_CALLS: Final = 500
"""Events of calls that wait for a slow reader; the others are counted and left out."""
MAX_OTHERS: Final = 500
"""Other events. A reader who lets so many wait loses the connection, and resumes from what it has seen."""


class EventQueue:
    """The events that wait for one watcher of the feed. Bounded."""

    def __init__(self, *, wants_calls: bool) -> None:
        self.wants_calls: Final = wants_calls
        self._calls = 0
        self._skipped = 0
        self._events: dict[object, bytes] = {}
        """In order; one of a state stands under the name of it, others under their numbers."""
        self._woken: asyncio.Event = asyncio.Event()
        self._is_ending = False
        self.is_lost = False
        """Whether it was too slow for what may not be left out."""

    def put(self, key: object, event: bytes) -> None:
        """Queue an event; one that waits under the same key is out of date."""
        if key not in self._events and len(self._events) - self._calls >= MAX_OTHERS:
            self.is_lost = True
            self.end()
            return
        # Taken out first, so that it goes to the end of the order: its number is the newest.
        self._events.pop(key, None)
        self._events[key] = event
        self._woken.set()

    def put_call(self, number: int, event: bytes) -> None:
        """Queue an event of a call, which may be left out."""
        # Left out rather than lost: the list of calls has them all, and the stream says how many.
        if self._calls >= MAX_CALLS:
            self._skipped += 1
            return
        self._calls += 1
        self._events[number] = event
        self._woken.set()

    def skip(self, count: int) -> None:
        """Note calls that it is not told of."""
        self._skipped += count
        self._woken.set()

    def end(self) -> None:
        """Let the reader end, once it has read what is here."""
        self._is_ending = True
        self._woken.set()

    async def get(self) -> bytes | None:
        """Return all that waits, once something does; None at the end."""
        while not self._events and not self._skipped:
            if self._is_ending:
                return None
            self._woken.clear()
            await self._woken.wait()
        events, self._events = self._events, {}
        skipped, self._skipped, self._calls = self._skipped, 0, 0
        return b"".join([*events.values(), *([skipped_event(skipped)] if skipped else [])])


class EventFeed:
    """Tells watchers what happens."""

    def __init__(self, numbers: SequenceNumbers, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.numbers: Final = numbers
        self._clock: Final = clock
        self._queues: Final[list[EventQueue]] = []
        self._second = 0
        self._told = 0
        """Calls of which watchers were told in this second."""
        self._left_out = 0
        self._is_draining = False

    def __len__(self) -> int:
        return len(self._queues)

    @property
    def has_room(self) -> bool:
        return len(self._queues) < MAX_WATCHERS

    @property
    def wants_calls(self) -> bool:
        return any(each.wants_calls for each in self._queues)

    @contextmanager
    def watch(self, *, wants_calls: bool = True) -> Iterator[EventQueue]:
        """The events from now on, for as long as the context lasts."""
        queue = EventQueue(wants_calls=wants_calls)
        if self._is_draining:
            queue.end()
        self._queues.append(queue)
        try:
            yield queue
        finally:
            self._queues.remove(queue)

    def publish(self, kind: str, value: JsonObject, *, number: int | None = None, is_state: bool = False) -> None:
        """Tell all of an event; `is_state`: it says how something is now, and takes the place of one that waits."""
        if not self._queues:
            return
        number = self.numbers.next() if number is None else number
        event = framed(kind, value, number)
        for queue in self._queues:
            queue.put(kind if is_state else number, event)

    def call_began(self, record: CallRecord) -> None:
        # Counted by whole seconds: a window that slides would need the time of every call.
        second = int(self._clock())
        if second != self._second:
            self._second, self._told = second, 0
        self._told += 1
        if self._told > CALLS_PER_SECOND:
            record.leave_out()
            self._left_out += 1
            return
        self.publish_call(record.summary(), record.seq)

    def call_ended(self, record: CallRecord) -> None:
        # The end of a call of whose beginning nobody was told would come out of nowhere.
        if not record.is_left_out:
            self.publish_call(record.summary(), record.ended_seq)

    def publish_call(self, call: JsonObject, number: int) -> None:
        """Tell of a call, and of the number of its beginning or end."""
        event = framed("call", call, number)
        for queue in self._queues:
            if queue.wants_calls:
                queue.put_call(number, event)

    def leave_out(self, count: int) -> None:
        """Count calls of which nobody is told."""
        self._left_out += count

    def tell_left_out(self) -> None:
        """Tell how many calls were left out since this was told last."""
        count, self._left_out = self._left_out, 0
        for queue in self._queues if count else ():
            if queue.wants_calls:
                queue.skip(count)

    def drain(self) -> None:
        """Let all streams end: the daemon is about to."""
        self._is_draining = True
        self.publish("draining", {})
        for queue in self._queues:
            queue.end()


def framed(kind: str, value: Json, number: int) -> bytes:
    """Return an event as it is written."""
    return encode_event(orjson.dumps(value), kind=kind, event_id=b"%d" % number)


def skipped_event(count: int) -> bytes:
    return encode_event(b'{"count":%d}' % count, kind="calls-skipped")
