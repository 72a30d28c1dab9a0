"""MCP on standard input and output: one message a line, both eras on one process (all revisions' basic/transports).

The end of the input, or of the reader of the output, ends everything that runs.
"""

import asyncio
import os
from contextlib import suppress
from typing import Final, Self

import msgspec

from gateway.access.identity import Identity
from gateway.errors import ErrorCode, RpcError
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.exchange import Binding, Caller
from gateway.protocol.session import Session
from gateway.transports.duplex_session import SHUTDOWN_GRACE_SECONDS, DuplexSession
from gateway.transports.errors import DRAINING, OPENERS
from gateway.transports.stdio.line_reader import LineMark, LineReader
from gateway.transports.stdio.line_writer import MAX_WAITING_BYTES, LineWriter
from gateway.wire.jsonrpc import Request


class StandardStreams(msgspec.Struct, frozen=True):
    """Private descriptors of what were standard input and output. Children do not inherit them."""

    reading: int
    writing: int

    @classmethod
    def take(cls) -> Self:
        """Do it, once, before anything else is imported or started.

        It is not undone: what a plugin leaves in Python's own buffer is written when the process ends, and must not
        reach the wire then either.
        """
        streams = cls(os.dup(0), os.dup(1))
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)
        os.dup2(2, 1)
        return streams


MAX_IN_FLIGHT: Final = 1024
"""Requests. Further lines are not read before one of them is done."""
AFTER_INPUT_SECONDS: Final = 0.5
"""How long calls may go on after the end of the input, so that `echo … | mcp-gateway serve --stdio` is answered."""
_LINES_OF_A_TURN: Final = 32
"""Lines that are taken before others have their turn, where that many have come."""
STANDSTILL_SECONDS: Final = 1.0
"""How long a client may have hung up, with more to be read, and taken nothing of what it was sent."""


_END: Final = LineMark.END


class Stdio:
    """The one client at the other end of the process's standard streams."""

    def __init__(  # noqa: PLR0913 - the parts and limits of a transport
        self,
        *,
        dispatcher: Dispatcher,
        streams: StandardStreams,
        max_line: int,
        max_unread: int = MAX_WAITING_BYTES,
        scopes: frozenset[str] | None = None,
        view: str | None = None,
    ) -> None:
        """Read nothing yet.

        Args:
            dispatcher: answers the messages.
            streams: the descriptors to read from and to write to.
            max_line: the size of the longest message, in bytes.
            max_unread: bytes of answers that may wait for the client to read them.
            scopes: what the client may do; None is everything.
            view: what the client is served; None is the whole catalog.
        """
        self._max_line: Final = max_line
        self._dispatcher: Final = dispatcher
        self._reader: Final = LineReader(streams.reading, limit=max_line)
        self._writer: Final = LineWriter(streams.writing, max_waiting=max_unread)
        self._channel: Final = DuplexSession(
            dispatcher=dispatcher,
            caller=Caller(binding=Binding.STDIO, identity=Identity(scopes=scopes), view=view, address="stdio"),
            write=self._writer.write,
            write_now=self._writer.write_now,
        )
        self._watch: asyncio.Task[None] | None = None
        self._write_timeout = AFTER_INPUT_SECONDS
        self._is_draining = self._has_drained = False
        """Whether the daemon stops: requests that open something are refused, and in the end all."""

    @property
    def open_sessions(self) -> tuple[Session, ...]:
        """Its session, if there is one."""
        return () if self._channel.session is None else (self._channel.session,)

    async def serve(self) -> None:
        """Answer lines until there are no more, or the reader of the answers is gone, or `close` is called."""
        self._watch = asyncio.get_running_loop().create_task(self._end_when_nobody_reads(), name="stdout watch")
        taken = 0
        while (line := await self._reader.next()) is not _END:
            await self._take(line)
            if not self._has_room:
                await self._wait_for_room()
            taken += 1
            # `next` does not suspend while lines are here, and `_take` need not: nobody else would have a turn.
            if taken % _LINES_OF_A_TURN == 0:
                await asyncio.sleep(0)
        await self._channel.drain(self._write_timeout)
        await self.close()

    async def drain(self, seconds: float) -> None:
        """Give calls this long to end by themselves, those that still come too; then cut them off, and refuse others.

        As long as the process is there, its client is told: it has no connection to lose that would say so.
        """
        self._write_timeout = seconds
        self._is_draining = True
        await self._channel.drain(seconds)
        self._has_drained = True
        await self._channel.cancel_all()

    async def close(self) -> None:
        """End what runs."""
        self._reader.end()
        if self._watch is not None:
            self._watch.cancel()
        await self._channel.close()
        await self._writer.close(SHUTDOWN_GRACE_SECONDS)

    async def _take(self, line: bytes | LineMark) -> None:
        """Take one line. Nothing here waits for the client to read: that is done in one place, `_wait_for_room`."""
        if not isinstance(line, bytes):
            why = f"The line is longer than {self._max_line} bytes (listen.max_body)"
            self._channel.refuse(RpcError(ErrorCode.INVALID_REQUEST, why))
        elif line.strip():
            message = self._dispatcher.decode(line)
            if isinstance(message, Request) and self._is_refused(message):
                stopping = RpcError(ErrorCode.INTERNAL_ERROR, DRAINING.message)
                self._channel.refuse(stopping, request_id=message.id)
            else:
                await self._channel.take(message, is_immediate=self._dispatcher.is_immediate(message, size=len(line)))

    def _is_refused(self, request: Request) -> bool:
        return self._has_drained or (self._is_draining and request.method in OPENERS)

    async def _end_when_nobody_reads(self) -> None:
        await self._writer.gone.wait()
        self._reader.end()

    @property
    def _has_room(self) -> bool:
        return self._writer.has_room and self._channel.in_flight < MAX_IN_FLIGHT

    async def _wait_for_room(self) -> None:
        """A client that sends and never reads may cost no memory without end, nor hold the process once it hung up."""
        while not self._has_room:
            before = self._writer.written, self._channel.answered
            with suppress(TimeoutError):
                async with asyncio.timeout(STANDSTILL_SECONDS):
                    await self._wait_for_change()
            if (self._writer.written, self._channel.answered) == before and self._reader.is_hung_up:
                self._reader.end()
                return

    async def _wait_for_change(self) -> None:
        if not self._writer.has_room:
            await self._writer.wait_for_room()
        else:
            # Nothing has suspended since `in_flight` was looked at, so no end is missed.
            self._channel.one_is_done.clear()
            await self._channel.one_is_done.wait()
