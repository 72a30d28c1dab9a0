"""Queues of messages for clients: notifications of a session, and messages that a call sends before its response."""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Final, Self

import structlog

from gateway.json_types import JsonObject
from gateway.wire import jsonrpc

log: Final = structlog.get_logger(__name__)

MAX_MESSAGES: Final = 1000


class NotificationCounters:
    __slots__ = ("dropped", "sent")

    def __init__(self) -> None:
        self.sent: Final[Counter[str]] = Counter()
        self.dropped: Final[Counter[str]] = Counter()


class Outbox:
    """A bounded queue of notifications for one client. If there are several readers, only the newest receives messages.

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
        """Queue a message, unless a message with the same key is queued. Return False if the queue is full.

        If `is_state` is true, the message replaces a queued message with the same key.
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
        """Close the queue. Readers end once they have received all queued messages."""
        self.is_closed = True
        for reader in self.readers:
            reader.wake()

    def reader(self) -> "OutboxReader":
        return OutboxReader(self)

    async def send_each(self, send: Callable[[bytes], Awaitable[object]]) -> None:
        """Send queued messages until the outbox is closed. Pause while there is a newer reader."""
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


Send = Callable[[], Awaitable[object]]


class SendQueue:
    """Sends the messages of one call in order.

    Plugins can call `context.progress(1)` with or without `await`. Without `await`, messages are sent in the
    background, but before the response.
    """

    __slots__ = ("_sending", "_waiting")

    def __init__(self) -> None:
        self._waiting: Final[deque[tuple[Send, asyncio.Future[None]]]] = deque()
        self._sending: asyncio.Task[None] | None = None

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= MAX_MESSAGES

    @property
    def last(self) -> asyncio.Future[None]:
        return self._waiting[-1][1]

    def put(self, send: Send) -> asyncio.Future[None]:
        """Queue a message. The returned future is done once the message is sent or sending has failed."""
        loop = asyncio.get_running_loop()
        sent: asyncio.Future[None] = loop.create_future()
        self._waiting.append((send, sent))
        if self._sending is None:
            self._sending = loop.create_task(self._send_all(), name="messages of a call")
        return sent

    async def drain(self) -> None:
        """Wait until all messages are sent. If the wait is cancelled, unsent messages are dropped."""
        if self._sending is None:
            return
        try:
            await asyncio.wait((self._sending,))
        except asyncio.CancelledError:
            self.cancel()
            raise

    def cancel(self) -> None:
        if self._sending is not None:
            self._sending.cancel()

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                send, sent = self._waiting[0]
                await _send(send, sent)
                self._waiting.popleft()
        finally:
            self._sending = None
            while self._waiting:  # after a cancellation
                self._waiting.popleft()[1].cancel()


async def _send(send: Send, sent: asyncio.Future[None]) -> None:
    try:
        await send()
    except Exception as error:  # noqa: BLE001 - Boundary: the future has the error
        log.warning("message to the client not sent", error=str(error))
        if not sent.done():
            sent.set_exception(error)
            sent.exception()  # marks the exception as retrieved
    else:
        if not sent.done():  # the waiting task may have been cancelled
            sent.set_result(None)
