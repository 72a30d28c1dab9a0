"""MCP on standard input and output: one message a line, both eras on one process (all revisions' basic/transports).

The end of the input, or of whoever reads the output, ends everything that runs.
"""

import asyncio
from contextlib import suppress
from typing import Final

from gateway.access.identity import Identity
from gateway.errors import ErrorCode, RpcError
from gateway.protocol import jsonrpc
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.exchange import Binding, Caller
from gateway.protocol.session import Session
from gateway.transports.conversation import FAREWELL_SECONDS, Conversation
from gateway.transports.stdio.line_reader import LineReader, Mark
from gateway.transports.stdio.line_writer import LineWriter
from gateway.transports.stdio.standard_streams import StandardStreams

MOST_IN_FLIGHT: Final = 1024
"""Requests. Further lines are not read before one of them is done."""
AFTER_INPUT_SECONDS: Final = 0.5
"""How long calls may go on after the end of the input, so that `echo … | mcp-gateway serve --stdio` is answered."""
STANDSTILL_SECONDS: Final = 1.0
"""How long a client may have hung up, with more to be read, and taken nothing of what it was sent."""


class Stdio:
    """The one client at the other end of the process's standard streams."""

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        streams: StandardStreams,
        max_line: int,
        max_depth: int,
        scopes: frozenset[str] | None = None,
    ) -> None:
        """Read nothing yet; `scopes` is what the client may do, None everything."""
        self._max_line: Final = max_line
        self._max_depth: Final = max_depth
        self._reader: Final = LineReader(streams.reading, limit=max_line)
        self._writer: Final = LineWriter(streams.writing)
        self._conversation: Final = Conversation(
            dispatcher=dispatcher,
            caller=Caller(binding=Binding.STDIO, identity=Identity(scopes=scopes), address="stdio"),
            write=self._writer.write,
        )
        self._watch: asyncio.Task[None] | None = None
        self._patience = AFTER_INPUT_SECONDS

    @property
    def open_sessions(self) -> tuple[Session, ...]:
        """Its session, if there is one."""
        return () if self._conversation.session is None else (self._conversation.session,)

    async def serve(self) -> None:
        """Answer lines until there are no more, or nobody reads the answers, or `drain` is called."""
        self._watch = asyncio.get_running_loop().create_task(self._end_when_nobody_reads(), name="stdout watch")
        while (line := await self._reader.next()) is not Mark.END:
            await self._take(line)
            await self._wait_for_room()
        await self._conversation.finish(self._patience)
        await self.close()

    async def drain(self, seconds: float) -> None:
        """Read no more lines, give the calls in flight this long to end by themselves, then cut them off."""
        self._patience = seconds
        self._reader.end()
        await self._conversation.finish(seconds)
        await self._conversation.cut_off()

    async def close(self) -> None:
        """End what runs."""
        self._reader.end()
        if self._watch is not None:
            self._watch.cancel()
        await self._conversation.close()
        await self._writer.close(FAREWELL_SECONDS)

    async def _take(self, line: bytes | Mark) -> None:
        """Take one line. Nothing here waits for the client to read: that is done in one place, `_wait_for_room`."""
        if line is Mark.TOO_LONG:
            why = f"The line is longer than {self._max_line} bytes (listen.max_body)"
            self._conversation.refuse(RpcError(ErrorCode.INVALID_REQUEST, why))
        elif isinstance(line, bytes) and line.strip():
            try:
                message = jsonrpc.decode(line, max_depth=self._max_depth)
            except RpcError as error:
                self._conversation.refuse(error)
            else:
                await self._conversation.take(message)

    async def _end_when_nobody_reads(self) -> None:
        await self._writer.gone.wait()
        self._reader.end()

    @property
    def _has_room(self) -> bool:
        return self._writer.has_room and self._conversation.in_flight < MOST_IN_FLIGHT

    async def _wait_for_room(self) -> None:
        """A client that sends and never reads may cost no memory without end, nor hold the process once it hung up."""
        while not self._has_room:
            before = self._writer.written, self._conversation.answered
            with suppress(TimeoutError):
                async with asyncio.timeout(STANDSTILL_SECONDS):
                    await self._wait_for_change()
            if (self._writer.written, self._conversation.answered) == before and self._reader.is_hung_up:
                self._reader.end()
                return

    async def _wait_for_change(self) -> None:
        if not self._writer.has_room:
            await self._writer.wait_for_room()
        else:
            self._conversation.one_is_done.clear()
            await self._conversation.one_is_done.wait()
