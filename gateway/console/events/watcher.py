"""One watcher of the event stream: what waits to be written to it, bounded."""

import asyncio
from typing import Final

from gateway.transports.sse.event_stream import encode_event

MAX_CALLS: Final = 500
"""Events of calls that wait for a slow reader; the others are counted and left out."""
MAX_OTHERS: Final = 500
"""Other events. A reader who lets so many wait loses the connection, and resumes from what it has seen."""


class Watcher:
    """A queue with one reader."""

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

    @property
    def waiting_bytes(self) -> int:
        return sum(map(len, self._events.values()))

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


def skipped_event(count: int) -> bytes:
    return encode_event(b'{"count":%d}' % count, kind="calls-skipped")
