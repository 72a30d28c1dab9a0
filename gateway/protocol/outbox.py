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

    __slots__ = ("messages", "readers")

    def __init__(self) -> None:
        self.messages: Final[deque[JsonObject]] = deque()
        self.readers: Final[list[OutboxReader]] = []

    def put(self, message: JsonObject) -> bool:
        """Queue a message; False if the queue is full and it was dropped."""
        if len(self.messages) >= LONGEST:
            return False
        self.messages.append(message)
        self.wake()
        return True

    def reader(self) -> "OutboxReader":
        """A new reader; while entered as a context manager it is the newest."""
        return OutboxReader(self)

    def wake(self) -> None:
        """Let the newest reader look."""
        if self.readers and self.messages:
            self.readers[-1].woken.set()


class OutboxReader:
    """One stream's turn at an outbox; the newest that is entered is the one that reads."""

    __slots__ = ("_outbox", "woken")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox: Final = outbox
        self.woken: Final = asyncio.Event()

    def __enter__(self) -> Self:
        self._outbox.readers.append(self)
        self._outbox.wake()
        return self

    def __exit__(self, *_: object) -> None:
        self._outbox.readers.remove(self)
        self._outbox.wake()

    async def get(self) -> JsonObject:
        """The next message, once there is one and no newer reader."""
        while not (self._outbox.messages and self._outbox.readers[-1] is self):
            self.woken.clear()
            await self.woken.wait()
        return self._outbox.messages.popleft()
