"""MCP on standard input and output: one message a line, both eras on one process (all revisions' basic/transports).

Requests run concurrently; what they say is written line by line. The end of the input, or of whoever reads the output,
ends everything that runs.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json, JsonObject
from gateway.protocol import jsonrpc
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.envelope import is_modern
from gateway.protocol.exchange import Binding, Caller, Reply
from gateway.protocol.in_flight import InFlight
from gateway.protocol.jsonrpc import Batch, Message, Notification, Request
from gateway.protocol.session import Session
from gateway.protocol.versions import V2026_07_28
from gateway.transports.line_reader import LineReader, Mark
from gateway.transports.line_writer import LineWriter
from gateway.transports.standard_streams import StandardStreams

MOST_IN_FLIGHT: Final = 1024
"""Requests. Further lines are not read before one of them is done."""
LAST_WORDS_SECONDS: Final = 0.5
"""How long calls may go on after the end of the input, so that `echo … | mcp-gateway serve --stdio` is answered."""
STANDSTILL_SECONDS: Final = 1.0
"""How long a client may have hung up, with more to be read, and taken nothing of what it was sent."""
FAREWELL_SECONDS: Final = 2.0
"""How long cancelled calls may take to end, and then the reader to take what is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _LineExchange:
    caller: Caller
    writer: LineWriter

    async def send(self, notification: JsonObject) -> None:
        await asyncio.sleep(0)  # a tool that reports in a tight loop must let others run
        await self.writer.write(jsonrpc.encode(notification))


class Stdio:
    """The one client at the other end of the process's standard streams."""

    def __init__(self, *, dispatcher: Dispatcher, streams: StandardStreams, max_line: int, max_depth: int) -> None:
        self._dispatcher: Final = dispatcher
        self._max_line: Final = max_line
        self._max_depth: Final = max_depth
        self._reader: Final = LineReader(streams.reading, limit=max_line)
        self._writer: Final = LineWriter(streams.writing)
        self._exchange: Final = _LineExchange(
            caller=Caller(binding=Binding.STDIO, address="stdio"), writer=self._writer
        )
        self._modern: Final = InFlight()
        self._session: Session | None = None
        self._requests: Final[set[asyncio.Task[None]]] = set()
        self._helpers: Final[set[asyncio.Task[None]]] = set()
        self._one_is_done: Final = asyncio.Event()
        self._done = 0
        self._last_words = LAST_WORDS_SECONDS

    async def serve(self) -> None:
        """Answer lines until there are no more, or nobody reads the answers, or `drain` is called."""
        self._help(self._end_when_nobody_reads(), name="stdout watch")
        while (line := await self._reader.next()) is not Mark.END:
            await self._take(line)
            await self._wait_for_room()
        await self._finish_requests(self._last_words)
        await self.close()

    async def drain(self, seconds: float) -> None:
        """Read no more lines, and give the calls in flight this long to end by themselves."""
        self._last_words = seconds
        self._reader.end()
        await self._finish_requests(seconds)

    async def close(self) -> None:
        """End what runs."""
        self._reader.end()
        for task in self._requests | self._helpers:
            task.cancel()
        await self._finish_requests(FAREWELL_SECONDS)
        await self._writer.close(FAREWELL_SECONDS)

    async def _take(self, line: bytes | Mark) -> None:
        """Take one line. Nothing here waits for the client to read: that is done in one place, `_wait_for_room`."""
        if line is Mark.TOO_LONG:
            error = RpcError(
                ErrorCode.INVALID_REQUEST, f"The line is longer than {self._max_line} bytes (listen.max_body)"
            )
            self._run(self._reply(self._reject(error)))
        elif isinstance(line, bytes) and line.strip():
            try:
                message = jsonrpc.decode(line, max_depth=self._max_depth)
            except RpcError as error:
                self._run(self._reply(self._reject(error)))
            else:
                await self._route(message)

    async def _route(self, message: Message) -> None:
        """Choose the era by the message itself: what came before on the connection says nothing about it.

        1. a modern request runs beside the others; a modern notification can only cancel one
        2. `initialize` opens the process's session
        3. before that: `ping` is answered, other requests are refused
        4. a legacy request runs beside the others; anything else is taken at once, in order
        """
        if isinstance(message, Notification) and message.method == "notifications/cancelled":
            self._modern.cancel(message.params.get("requestId"))
        if not isinstance(message, Batch) and is_modern(message, version_header=None):
            if isinstance(message, Request):
                self._run(self._answer_modern(message))
        elif self._session is None:
            await self._begin(message)
        elif isinstance(message, Request | Batch):
            self._run(self._answer_legacy(message, self._session))
        else:
            await self._dispatcher.answer_legacy(message, self._session, self._exchange)

    async def _begin(self, message: Message) -> None:
        """Take a legacy message while there is no session."""
        match message:
            case Request(method="initialize"):
                self._session, reply = await self._dispatcher.open_session(message, self._exchange)
                self._run(self._reply(reply))
                if self._session is not None:
                    self._help(self._carry_outbox(self._session), name="stdio outbox")
            case Request(method="ping"):
                self._run(self._reply(Reply(body=jsonrpc.encode_result(message.id, b"{}"))))
            case Request() | Batch():
                error = RpcError(ErrorCode.INVALID_REQUEST, "A session begins with `initialize`")
                self._run(self._reply(self._reject(error, message)))
            case _:
                pass  # notifications and responses are never answered

    async def _answer_modern(self, request: Request) -> None:
        try:
            reply = await self._modern.run(request.id, self._dispatcher.answer_modern(request, self._exchange))
        except RpcError as error:
            reply = self._dispatcher.reject(error, request_id=request.id, revision=V2026_07_28)
        await self._reply(reply)

    async def _answer_legacy(self, message: Request | Batch, session: Session) -> None:
        await self._reply(await self._dispatcher.answer_legacy(message, session, self._exchange))

    async def _reply(self, reply: Reply) -> None:
        if reply.body is not None:
            await self._writer.write(reply.body)

    def _reject(self, error: RpcError, message: Message | None = None) -> Reply:
        return self._dispatcher.reject(
            error,
            request_id=message.id if isinstance(message, Request) else None,
            revision=None if self._session is None else self._session.revision,
        )

    async def _carry_outbox(self, session: Session) -> None:
        with session.outbox.reader() as reader:
            while (message := await reader.get()) is not None:
                await self._writer.write(jsonrpc.encode(message))

    async def _end_when_nobody_reads(self) -> None:
        await self._writer.gone.wait()
        self._reader.end()

    def _run(self, answering: Coroutine[Json, Json, None]) -> None:
        task = asyncio.get_running_loop().create_task(answering, name="stdio request")
        self._requests.add(task)
        task.add_done_callback(self._note_done)

    def _help(self, helping: Coroutine[Json, Json, None], *, name: str) -> None:
        task = asyncio.get_running_loop().create_task(helping, name=name)
        self._helpers.add(task)
        task.add_done_callback(self._helpers.discard)

    def _note_done(self, task: asyncio.Task[None]) -> None:
        self._requests.discard(task)
        self._done += 1
        self._one_is_done.set()

    @property
    def _has_room(self) -> bool:
        return self._writer.has_room and len(self._requests) < MOST_IN_FLIGHT

    async def _wait_for_room(self) -> None:
        """A client that sends and never reads may cost no memory without end, nor hold the process once it hung up."""
        while not self._has_room:
            before = self._writer.written, self._done
            with suppress(TimeoutError):
                async with asyncio.timeout(STANDSTILL_SECONDS):
                    await self._wait_for_change()
            if (self._writer.written, self._done) == before and self._reader.is_hung_up:
                self._reader.end()
                return

    async def _wait_for_change(self) -> None:
        if not self._writer.has_room:
            await self._writer.wait_for_room()
        else:
            self._one_is_done.clear()
            await self._one_is_done.wait()

    async def _finish_requests(self, seconds: float) -> None:
        if self._requests:
            await asyncio.wait(self._requests, timeout=seconds)
