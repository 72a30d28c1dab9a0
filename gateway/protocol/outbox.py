"""Queues notifications for one client until one of its streams takes them. Sends nothing itself."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, Self

from gateway.json_types import JsonObject
from gateway.wire import jsonrpc

MAX_MESSAGES: Final = 1000
"""Messages. A client that never opens a stream must not cost memory without end."""


class NotificationCounters:
    """Counts, by method, the notifications that were sent to clients, and those dropped because nobody read them."""

    __slots__ = ("dropped", "sent")

    def __init__(self) -> None:
        self.sent: Final[Counter[str]] = Counter()
        self.dropped: Final[Counter[str]] = Counter()


class Outbox:
    """A bounded queue with any number of readers; the newest gets the messages, and none gets one twice.

    An announcement says that something has changed, so one that still waits says it for every later change too: each
    key waits once at the most. 2025-11-25 basic/transports, "Multiple Connections": a message goes out on one stream.
    """

    __slots__ = ("counters", "is_closed", "messages", "readers")

    def __init__(self) -> None:
        self.counters: NotificationCounters | None = None
        """Where messages are counted as they are taken, and those that were dropped."""
        self.messages: Final[dict[str, JsonObject]] = {}
        self.readers: Final[list[OutboxReader]] = []
        self.is_closed = False

    def put(self, key: str, message: JsonObject, *, is_state: bool = False) -> bool:
        """Queue a message; False if the queue is full and it was dropped.

        `is_state`: it says how something is now, and takes the place of one that still waits.
        """
        if key not in self.messages and len(self.messages) >= MAX_MESSAGES:
            if self.counters is not None:
                self.counters.dropped[message["method"]] += 1
            return False
        if is_state:
            self.messages[key] = message
        else:
            self.messages.setdefault(key, message)
        self.wake()
        return True

    def close(self) -> None:
        """Let readers end, once they have read what is here."""
        self.is_closed = True
        for reader in self.readers:
            reader.wake()

    def reader(self) -> "OutboxReader":
        """A new reader; while entered as a context manager it is the newest."""
        return OutboxReader(self)

    async def send_each(self, send: Callable[[bytes], Awaitable[object]]) -> None:
        """Send each message as it comes, as long as no newer reader takes them, until the outbox is closed."""
        with self.reader() as reader:
            while (message := await reader.get()) is not None:
                await send(jsonrpc.encode(message))

    def wake(self) -> None:
        """Let the newest reader look."""
        if self.readers and self.messages:
            self.readers[-1].wake()


class OutboxReader:
    """One stream's turn at an outbox; the newest that is entered is the one that reads."""

    __slots__ = ("_outbox", "_woken")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox: Final = outbox
        self._woken: asyncio.Future[None] | None = None
        """Done once it is to look again. An event would hold a kibibyte for each open stream."""

    def __enter__(self) -> Self:
        self._outbox.readers.append(self)
        self._outbox.wake()
        return self

    def __exit__(self, *_: object) -> None:
        self._outbox.readers.remove(self)
        # The next newest may have waited while this one read.
        self._outbox.wake()

    def wake(self) -> None:
        """Let it look again, if it waits."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def get(self) -> JsonObject | None:
        """The next message, once there is one and no newer reader; None once the outbox is closed and empty."""
        messages = self._outbox.messages
        while not (messages and self._outbox.readers[-1] is self):
            if self._outbox.is_closed:
                return None
            self._woken = asyncio.get_running_loop().create_future()
            await self._woken
        # Nothing is awaited from here to the return: a reader that is cancelled takes no message with it.
        message = messages.pop(next(iter(messages)))
        if self._outbox.counters is not None:
            self._outbox.counters.sent[message["method"]] += 1
        return message
