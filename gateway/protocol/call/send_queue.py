"""Queues the messages that a call sends before the response.

Plugins can call `context.progress(1)` with or without `await`. Without `await`, messages are sent in the background, in
order, and before the response.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from gateway.protocol.outbox import MAX_MESSAGES

log: Final = structlog.get_logger(__name__)

Send = Callable[[], Awaitable[object]]


class SendQueue:
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
