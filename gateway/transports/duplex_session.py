"""Serves one client over a two-way channel: stdio's pipes, or HTTP+SSE's stream and POSTs.

Requests run concurrently, each in a task of the session; what they send goes into the channel message by message. The
end of the channel ends everything that runs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final

import msgspec
import structlog
from msgspec.structs import replace

from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json, JsonObject
from gateway.protocol import results
from gateway.protocol.dispatcher import Dispatcher, Received
from gateway.protocol.exchange import Caller, Reply
from gateway.protocol.in_flight import InFlight
from gateway.protocol.session import Session
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Batch, Notification, Request, RequestId, size_of

log: Final = structlog.get_logger()

SHUTDOWN_GRACE_SECONDS: Final = 2.0
"""How long cancelled calls may take to end."""

Write = Callable[[bytes], Awaitable[bool]]
"""Puts one encoded message into the channel. Does nothing once the client is gone. Returns False if the message was
dropped because too many bytes wait for the client to read them."""

_UNREAD: Final = RpcError(
    ErrorCode.INTERNAL_ERROR, "The answer was dropped: too many bytes of answers wait to be read (limits.unread)"
)


_ANSWERED: Final = (Request, Batch)
"""What gets an answer."""


class _ChannelExchange(msgspec.Struct, frozen=True, kw_only=True):
    caller: Caller
    write: Write

    async def send(self, notification: JsonObject) -> bool:
        await asyncio.sleep(0)  # a tool that reports in a tight loop must let others run
        return await self.write(jsonrpc.encode(notification))

    async def close_stream(self, retry_ms: int | None) -> None:
        """Nothing: the channel is all there is."""


class DuplexSession:
    """Takes messages in their order and answers them. Nothing in `take` waits for the client to read."""

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        caller: Caller,
        write: Write,
        write_now: Callable[[bytes], bool] | None = None,
    ) -> None:
        """Take nothing yet; `write_now` writes what needs no wait, and tells whether it did."""
        self._dispatcher: Final = dispatcher
        self._write_now: Final = write_now
        self._exchange: Final = _ChannelExchange(caller=caller, write=write)
        self._modern: Final = InFlight()
        self.session: Session | None = None
        """The session that `initialize` opened, if that has come."""
        self._requests: Final[dict[asyncio.Task[None], int]] = {}
        """The tasks that answer, and how many messages each answers: a batch has many."""
        self.in_flight = 0
        """Messages that are being answered; a batch counts as all of its entries until the last is done."""
        self._outbox: asyncio.Task[None] | None = None
        self.one_is_done: Final = asyncio.Event()
        """Set whenever a request has been answered."""
        self.answered = 0

    async def take(self, message: Received, caller: Caller | None = None, *, is_immediate: bool = False) -> None:
        """Answer a message; `is_immediate` says that this waits for nothing.

        Requests run beside each other. What begins the session, and what answers nothing, is taken at once, in order:
        the messages behind it depend on it.

        The caller is another where each message comes with credentials of its own; they may allow more or less.
        """
        exchange = self._exchange if caller is None else replace(self._exchange, caller=caller)
        opens = self.session is None and isinstance(message, Request) and message.method == "initialize"
        if isinstance(message, _ANSWERED) and not (opens or is_immediate):
            self._run(self._answer(message, exchange), messages=size_of(message))
            return
        if self._requests and isinstance(message, Notification) and message.method == "notifications/cancelled":
            await asyncio.sleep(0)  # what it cancels may have come in the same read, and its task has not begun
        reply = await self._dispatcher.answer(message, exchange, self.session, in_flight=self._modern)
        if opens and reply.session is not None:
            self.session = reply.session
            self._dispatcher.notifier.session_opened(reply.session)
            sending = reply.session.outbox.send_each(self._exchange.write)
            self._outbox = asyncio.get_running_loop().create_task(sending, name="outbox")
        # What cannot be written at once waits for the client to read, and `take` must not: it gets a task.
        if reply.body is not None and not (self._write_now is not None and self._write_now(reply.body)):
            self._run(self._write(reply, message))

    def refuse(self, error: RpcError, *, request_id: RequestId | None = None) -> None:
        """Answer what could not be read, or is not to be served."""
        revision = None if self.session is None else self.session.revision
        refusal = results.error_reply(error, request_id=request_id, revision=revision)
        self._run(self._write(refusal, None))

    async def drain(self, seconds: float) -> None:
        """Give the calls in flight this long to end by themselves, those that begin meanwhile too."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self._requests and (left := end - loop.time()) > 0:
            await asyncio.wait(self._requests, timeout=left)

    async def cancel_all(self) -> None:
        """End what runs, and tell the client so."""
        # First, so that calls cancelled next are answered with an error instead of nothing.
        self._dispatcher.stop()
        await self._cancel()

    async def close(self) -> None:
        """End what runs."""
        if self._outbox is not None:
            self._outbox.cancel()
        await self._cancel()
        if self.session is not None:
            self.session.end()

    async def _cancel(self) -> None:
        for task in self._requests:
            task.cancel()
        await self.drain(SHUTDOWN_GRACE_SECONDS)

    async def _answer(self, message: Request | Batch, exchange: _ChannelExchange) -> None:
        # No variable for the answer, which must be freed once it is dropped.
        await self._write(
            await self._dispatcher.answer(message, exchange, self.session, in_flight=self._modern), message
        )

    async def _write(self, reply: Reply, message: Received | None) -> None:
        """Write the answer to a message, or an error in place of one that was dropped."""
        if reply.body is None or await self._exchange.write(reply.body):
            return
        del reply  # the error waits, too
        log.warning("answer dropped", why="its client reads too slowly")
        entries = message.entries if isinstance(message, Batch) else (message,)
        failures = [
            results.error_reply(_UNREAD, request_id=each.id, revision=None).body
            for each in entries
            if isinstance(each, Request)
        ]
        body = b",".join(filter(None, failures))
        await self._exchange.write(b"[%b]" % body if isinstance(message, Batch) else body)

    def _run(self, answering: Coroutine[Json, Json, None], *, messages: int = 1) -> None:
        task = asyncio.get_running_loop().create_task(answering, name="request")
        self._requests[task] = messages
        self.in_flight += messages
        task.add_done_callback(self._note_done)

    def _note_done(self, task: asyncio.Task[None]) -> None:
        self.in_flight -= self._requests.pop(task)
        self.answered += 1
        self.one_is_done.set()
