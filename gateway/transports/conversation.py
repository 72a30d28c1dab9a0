"""One client at the other end of a two-way channel: stdio's pipes, or HTTP+SSE's stream and POSTs.

Requests run concurrently, each in a task of the conversation; what they say goes into the channel message by message.
The end of the channel is the end of everything that runs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Final

from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json, JsonObject
from gateway.protocol import jsonrpc
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.envelope import is_modern
from gateway.protocol.exchange import Caller, Reply
from gateway.protocol.in_flight import InFlight
from gateway.protocol.jsonrpc import Batch, Message, Notification, Request
from gateway.protocol.last_words import LastWords
from gateway.protocol.session import Session
from gateway.protocol.versions import V2026_07_28

FAREWELL_SECONDS: Final = 2.0
"""How long cancelled calls may take to end."""

Write = Callable[[bytes], Awaitable[None]]
"""Puts one encoded message into the channel. Does nothing once the client is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChannelExchange:
    caller: Caller
    write: Write

    async def send(self, notification: JsonObject) -> bool:
        await asyncio.sleep(0)  # a tool that reports in a tight loop must let others run
        await self.write(jsonrpc.encode(notification))
        return True

    async def close_stream(self, retry_ms: int | None) -> None:
        """Nothing: the channel is all there is."""


class Conversation:
    """Takes messages in their order and answers them. Nothing in `take` waits for the client to read."""

    def __init__(self, *, dispatcher: Dispatcher, caller: Caller, write: Write) -> None:
        self._dispatcher: Final = dispatcher
        self._exchange: Final = _ChannelExchange(caller=caller, write=write)
        self._modern: Final = InFlight()
        self._session: Session | None = None
        self._requests: Final[set[asyncio.Task[None]]] = set()
        self._outbox: asyncio.Task[None] | None = None
        self._last_words: Final = LastWords()
        self.one_is_done: Final = asyncio.Event()
        """Set whenever a request has been answered."""
        self.answered = 0

    @property
    def in_flight(self) -> int:
        return len(self._requests)

    @property
    def session(self) -> Session | None:
        """What `initialize` opened, if that has come."""
        return self._session

    async def take(self, message: Message, caller: Caller | None = None) -> None:
        """Choose the era by the message itself: what came before on the channel says nothing about it.

        The caller is another where each message comes with credentials of its own; they may allow more or less.

        1. a modern request runs beside the others; a modern notification can only cancel one
        2. `initialize` opens the channel's session
        3. before that: `ping` is answered, other requests are refused
        4. a legacy request runs beside the others; anything else is taken at once, in order
        """
        if isinstance(message, Notification) and message.method == "notifications/cancelled":
            self._modern.cancel(message.params.get("requestId"))
        exchange = self._exchange if caller is None else replace(self._exchange, caller=caller)
        if not isinstance(message, Batch) and is_modern(message, version_header=None):
            if isinstance(message, Request):
                self._run(self._answer_modern(message, exchange))
        elif self._session is None:
            await self._begin(message, exchange)
        elif isinstance(message, Request | Batch):
            self._run(self._answer_legacy(message, self._session, exchange))
        else:
            await self._dispatcher.answer_legacy(message, self._session, exchange)

    def refuse(self, error: RpcError, message: Message | None = None) -> None:
        """Answer what could not be read, or is not to be served."""
        reply = self._dispatcher.reject(
            error,
            request_id=message.id if isinstance(message, Request) else None,
            revision=None if self._session is None else self._session.revision,
        )
        self._run(self._reply(reply))

    async def finish(self, seconds: float) -> None:
        """Give the calls in flight this long to end by themselves, those that begin meanwhile too."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self._requests and (left := end - loop.time()) > 0:
            await asyncio.wait(self._requests, timeout=left)

    async def cut_off(self) -> None:
        """End what runs, and tell the client so."""
        self._last_words.begin()
        await self._cancel()

    async def close(self) -> None:
        """End what runs."""
        if self._outbox is not None:
            self._outbox.cancel()
        await self._cancel()

    async def _begin(self, message: Message, exchange: _ChannelExchange) -> None:
        """Take a legacy message while there is no session."""
        match message:
            case Request(method="initialize"):
                self._session, reply = await self._dispatcher.open_session(message, exchange)
                self._run(self._reply(reply))
                if self._session is not None:
                    carrying = self._carry_outbox(self._session)
                    self._outbox = asyncio.get_running_loop().create_task(carrying, name="outbox")
            case Request(method="ping"):
                self._run(self._reply(Reply(body=jsonrpc.encode_result(message.id, b"{}"))))
            case Request() | Batch():
                self.refuse(RpcError(ErrorCode.INVALID_REQUEST, "A session begins with `initialize`"), message)
            case _:
                pass  # notifications and responses are never answered

    async def _cancel(self) -> None:
        for task in self._requests:
            task.cancel()
        await self.finish(FAREWELL_SECONDS)

    async def _answer_modern(self, request: Request, exchange: _ChannelExchange) -> None:
        answering = self._modern.run(request.id, self._dispatcher.answer_modern(request, exchange))
        try:
            reply = await self._last_words.or_apology(answering, request, revision=V2026_07_28)
        except RpcError as error:
            reply = self._dispatcher.reject(error, request_id=request.id, revision=V2026_07_28)
        await self._reply(reply)

    async def _answer_legacy(self, message: Request | Batch, session: Session, exchange: _ChannelExchange) -> None:
        answering = self._dispatcher.answer_legacy(message, session, exchange)
        await self._reply(await self._last_words.or_apology(answering, message, revision=session.revision))

    async def _reply(self, reply: Reply) -> None:
        if reply.body is not None:
            await self._exchange.write(reply.body)

    async def _carry_outbox(self, session: Session) -> None:
        with session.outbox.reader() as reader:
            while (message := await reader.get()) is not None:
                await self._exchange.write(jsonrpc.encode(message))

    def _run(self, answering: Coroutine[Json, Json, None]) -> None:
        task = asyncio.get_running_loop().create_task(answering, name="request")
        self._requests.add(task)
        task.add_done_callback(self._note_done)

    def _note_done(self, task: asyncio.Task[None]) -> None:
        self._requests.discard(task)
        self.answered += 1
        self.one_is_done.set()
