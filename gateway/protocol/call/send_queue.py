"""The queue of what one call sends to its client, one message after the other in the order in which they were said.

Why: `context.progress(1)` is sent with and without `await`. A function that does not wait goes on at once, so its
message is sent beside it, and must overtake neither an earlier one nor the call's answer.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from gateway.protocol.outbox import MAX_MESSAGES

log: Final = structlog.get_logger()

Send = Callable[[], Awaitable[object]]


class SendQueue:
    """Holds what was not sent yet; while there is something, a task of its own sends it."""

    __slots__ = ("_sending", "_waiting")

    def __init__(self) -> None:
        self._waiting: Final[deque[tuple[Send, asyncio.Future[None]]]] = deque()
        self._sending: asyncio.Task[None] | None = None

    @property
    def is_full(self) -> bool:
        """Whether the client is so far behind that nothing more may be put."""
        return len(self._waiting) >= MAX_MESSAGES

    @property
    def last(self) -> asyncio.Future[None]:
        """The future of what was put last, and is not sent yet."""
        return self._waiting[-1][1]

    def put(self, send: Send) -> asyncio.Future[None]:
        """Send after what was put before; the future is done once it is sent, and has the error if it was not."""
        loop = asyncio.get_running_loop()
        sent: asyncio.Future[None] = loop.create_future()
        self._waiting.append((send, sent))
        if self._sending is None:
            self._sending = loop.create_task(self._send_all(), name="messages of a call")
        return sent

    async def drain(self) -> None:
        """Wait until nothing is left to be sent; one who is cancelled meanwhile leaves the rest unsent."""
        if self._sending is None:
            return
        try:
            await asyncio.wait((self._sending,))
        except asyncio.CancelledError:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Send nothing more."""
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
            while self._waiting:  # only after a cancellation
                self._waiting.popleft()[1].cancel()


async def _send(send: Send, sent: asyncio.Future[None]) -> None:
    try:
        await send()
    except Exception as error:  # noqa: BLE001 - Boundary: it is raised to whoever waits, and perhaps nobody does
        log.warning("message to the client not sent", error=str(error))
        if not sent.done():
            sent.set_exception(error)
            sent.exception()  # or asyncio would complain, too, if nobody waits
    else:
        if not sent.done():  # whoever waited may have been cancelled
            sent.set_result(None)
