import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, Self

from gateway.json_types import JsonObject
from gateway.wire import jsonrpc

MAX_MESSAGES: Final = 1000


class NotificationCounters:
    __slots__ = ("dropped", "sent")

    def __init__(self) -> None:
        self.sent: Final[Counter[str]] = Counter()
        self.dropped: Final[Counter[str]] = Counter()


class Outbox:
    """A bounded queue of notifications for one client. If there are several readers, the newest receives all messages.

    2025-11-25 basic/transports, "Multiple Connections": each message is sent on one stream only. Queued messages with
    the same key are merged.
    """

    __slots__ = ("counters", "is_closed", "messages", "readers")

    def __init__(self) -> None:
        self.counters: NotificationCounters | None = None
        self.messages: Final[dict[str, JsonObject]] = {}
        self.readers: Final[list[OutboxReader]] = []
        self.is_closed = False

    def count_with(self, counters: NotificationCounters) -> None:
        self.counters = counters

    def put(self, key: str, message: JsonObject, *, is_state: bool = False) -> bool:
        """Queue a message, or return False if the queue is full. With `is_state`, replace a queued message of `key`."""
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
        """Close the queue. Readers end once they have received all queued messages."""
        self.is_closed = True
        for reader in self.readers:
            reader.wake()

    def reader(self) -> "OutboxReader":
        return OutboxReader(self)

    async def send_each(self, send: Callable[[bytes], Awaitable[object]]) -> None:
        """Send queued messages until the outbox is closed. Sending pauses while there is a newer reader."""
        with self.reader() as reader:
            while (message := await reader.get()) is not None:
                await send(jsonrpc.encode(message))

    def wake(self) -> None:
        if self.readers and self.messages:
            self.readers[-1].wake()


class OutboxReader:
    __slots__ = ("_outbox", "_woken")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox: Final = outbox
        self._woken: asyncio.Future[None] | None = None
        """A future instead of an `asyncio.Event`, because an event would use 1 KiB per open stream."""

    def __enter__(self) -> Self:
        self._outbox.readers.append(self)
        self._outbox.wake()
        return self

    def __exit__(self, *_: object) -> None:
        self._outbox.readers.remove(self)
        self._outbox.wake()

    def wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def get(self) -> JsonObject | None:
        """Wait for the next message and return it. Return None once the outbox is closed and empty."""
        messages = self._outbox.messages
        while not (messages and self._outbox.readers[-1] is self):
            if self._outbox.is_closed:
                return None
            self._woken = asyncio.get_running_loop().create_future()
            await self._woken
        # From here on, nothing is awaited, so a cancelled reader loses no message.
        message = messages.pop(next(iter(messages)))
        if self._outbox.counters is not None:
            self._outbox.counters.sent[message["method"]] += 1
        return message
