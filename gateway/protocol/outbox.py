"""Messages of a legacy session that belong to no request, until one of its streams takes them."""

import asyncio
from collections import deque
from typing import Final, Self

from gateway.json_types import JsonObject

LONGEST: Final = 256
"""Messages. A client that never opens a stream must not cost memory without end."""


class Outbox:
    """A bounded queue with any number of readers; the newest gets the messages, and none gets one twice.

    2025-11-25 basic/transports, "Multiple Connections": each message goes out on one stream, never on several.
    """

    __slots__ = ("_messages", "_readers")

    def __init__(self) -> None:
        self._messages: deque[JsonObject] = deque()
        self._readers: list[OutboxReader] = []

    def put(self, message: JsonObject) -> bool:
        """Queue a message; False if the queue is full and it was dropped."""
        if len(self._messages) >= LONGEST:
            return False
        self._messages.append(message)
        self._wake()
        return True

    def reader(self) -> "OutboxReader":
        """A new reader, to be used as a context manager; while open it is the newest."""
        return OutboxReader(self)

    def _wake(self) -> None:
        if self._readers and self._messages:
            self._readers[-1].woken.set()


class OutboxReader:
    __slots__ = ("_outbox", "woken")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.woken = asyncio.Event()

    def __enter__(self) -> Self:
        self._outbox._readers.append(self)
        self._outbox._wake()
        return self

    def __exit__(self, *_: object) -> None:
        self._outbox._readers.remove(self)
        self._outbox._wake()

    async def get(self) -> JsonObject:
        """The next message, once there is one and no newer reader."""
        while not (self._outbox._messages and self._outbox._readers[-1] is self):
            self.woken.clear()
            await self.woken.wait()
        return self._outbox._messages.popleft()
