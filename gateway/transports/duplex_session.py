"""Serves one client over a two-way channel: stdio, or the stream and POST requests of HTTP+SSE.

Requests run concurrently and are cancelled when the channel closes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final

import structlog
from msgspec.structs import replace

from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json, JsonObject
from gateway.protocol import results
from gateway.protocol.dispatcher import Dispatcher, Received
from gateway.protocol.exchange import Caller, ChannelExchange, Reply
from gateway.protocol.session import InFlight, Session
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Batch, Notification, Request, RequestId, size_of

log: Final = structlog.get_logger(__name__)

SHUTDOWN_GRACE_SECONDS: Final = 2.0

Write = Callable[[bytes], Awaitable[bool]]
"""Writes one encoded message. Returns False if the message was dropped because the client reads too slowly."""

_UNREAD: Final = RpcError(
    ErrorCode.INTERNAL_ERROR, "The response was dropped: too many response bytes are waiting to be read (limits.unread)"
)
_ANSWERED: Final = (Request, Batch)


class DuplexSession:
    """Handles the messages of one client. Requests start in order of arrival and then run concurrently."""

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        caller: Caller,
        write: Write,
    ) -> None:
        self._dispatcher: Final = dispatcher
        self._write_message: Final = write
        self._exchange: Final = ChannelExchange(caller=caller, deliver=self._send)
        self._modern: Final = InFlight()
        self.session: Session | None = None
        self._requests: Final[dict[asyncio.Task[None], int]] = {}
        self.in_flight = 0
        """The number of messages in flight. All entries of a batch count until the batch is done."""
        self._outbox: asyncio.Task[None] | None = None
        self.one_is_done: Final = asyncio.Event()
        self.answered = 0

    async def handle(self, message: Received, caller: Caller | None = None) -> None:
        """Handle a message.

        Requests run in the background. All other messages, and the first `initialize`, are handled before this method
        returns, because later messages depend on their effects. `caller` overrides the session's caller for this
        message.
        """
        exchange = self._exchange if caller is None else replace(self._exchange, caller=caller)
        opens = self.session is None and isinstance(message, Request) and message.method == "initialize"
        if isinstance(message, _ANSWERED) and not opens:
            task = asyncio.get_running_loop().create_task(self._answer(message, exchange), name="request")
            self._note_begun(task, messages=size_of(message))
            return
        if self._requests and isinstance(message, Notification) and message.method == "notifications/cancelled":
            await asyncio.sleep(0)  # The task of a request from the same read might not have started yet.
        reply = await self._dispatcher.answer(message, exchange, self.session, in_flight=self._modern)
        if opens and reply.session is not None:
            self.session = reply.session
            self._dispatcher.notifier.session_opened(reply.session)
            sending = reply.session.outbox.send_each(self._write_message)
            self._outbox = asyncio.get_running_loop().create_task(sending, name="outbox")
        # `handle` must not wait for the client to read.
        if reply.body is not None:
            self._run(self._write(reply, message))

    def refuse(self, error: RpcError, *, request_id: RequestId | None = None) -> None:
        revision = None if self.session is None else self.session.revision
        refusal = results.error_reply(error, request_id=request_id, revision=revision)
        self._run(self._write(refusal, None))

    async def drain(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self._requests and (left := end - loop.time()) > 0:
            await asyncio.wait(self._requests, timeout=left)

    async def cancel_all(self) -> None:
        # Stop the dispatcher first, so that cancelled calls respond with an error.
        self._dispatcher.stop()
        await self._cancel()

    async def close(self) -> None:
        if self._outbox is not None:
            self._outbox.cancel()
        await self._cancel()
        if self.session is not None:
            self.session.end()

    async def _cancel(self) -> None:
        for task in self._requests:
            task.cancel()
        await self.drain(SHUTDOWN_GRACE_SECONDS)

    async def _answer(self, message: Request | Batch, exchange: ChannelExchange) -> None:
        # Do not keep the reply in a local variable, so that a dropped response is freed at once.
        await self._write(
            await self._dispatcher.answer(message, exchange, self.session, in_flight=self._modern), message
        )

    async def _send(self, notification: JsonObject) -> bool:
        await asyncio.sleep(0)  # Let other tasks run even if a tool sends progress in a tight loop.
        return await self._write_message(jsonrpc.encode(notification))

    async def _write(self, reply: Reply, message: Received | None) -> None:
        if reply.body is None or await self._write_message(reply.body):
            return
        del reply  # Free the response while the error waits.
        log.warning("response dropped", why="its client reads too slowly")
        entries = message.entries if isinstance(message, Batch) else (message,)
        ids = [each.id for each in entries if isinstance(each, Request)]
        failures = [results.error_reply(_UNREAD, request_id=each, revision=None).body or b"" for each in ids]
        body = b",".join(failures)
        await self._write_message(b"[%b]" % body if isinstance(message, Batch) else body)

    def _run(self, writing: Coroutine[Json, Json, None]) -> None:
        self._note_begun(asyncio.get_running_loop().create_task(writing, name="response"))

    def _note_begun(self, task: asyncio.Task[None], *, messages: int = 1) -> None:
        self._requests[task] = messages
        self.in_flight += messages
        task.add_done_callback(self._note_done)

    def _note_done(self, task: asyncio.Task[None]) -> None:
        self.in_flight -= self._requests.pop(task)
        self.answered += 1
        self.one_is_done.set()
