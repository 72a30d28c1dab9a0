"""MCP on standard input and output, with one message per line, for clients of all protocol revisions.

The transport ends when standard input ends or standard output is closed.
"""

import asyncio
import os
from contextlib import suppress
from typing import Final, Self

import msgspec

from gateway.access.identity import Identity
from gateway.errors import ErrorCode, RpcError
from gateway.protocol.dispatcher import Dispatcher, Received
from gateway.protocol.exchange import Binding, Caller
from gateway.protocol.session import Session
from gateway.transports.duplex_session import SHUTDOWN_GRACE_SECONDS, DuplexSession
from gateway.transports.errors import DRAINING, OPENERS
from gateway.transports.stdio.line_reader import LineReader
from gateway.transports.stdio.line_writer import MAX_WAITING_BYTES, LineWriter
from gateway.wire.jsonrpc import Request


class StandardStreams(msgspec.Struct, frozen=True):
    """Private duplicates of standard input and output, which child processes do not inherit.

    Plugins (`print`) and child processes must neither write between MCP messages nor read MCP messages. Therefore
    descriptor 1 becomes standard error, and descriptor 0 becomes /dev/null.
    """

    reading: int
    writing: int

    @classmethod
    def take(cls) -> Self:
        """Take over the streams. Call this once, before anything else is imported or started.

        The streams are never restored, because Python writes buffered output of plugins when the process ends.
        """
        streams = cls(os.dup(0), os.dup(1))
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)
        os.dup2(2, 1)
        return streams


MAX_IN_FLIGHT: Final = 1024
"""Reading pauses at this number of requests in flight."""
AFTER_INPUT_SECONDS: Final = 0.5
"""The time for calls to finish after the end of input, so that `echo … | mcp-gateway serve --stdio` works."""
_LINES_OF_A_TURN: Final = 32
STANDSTILL_SECONDS: Final = 1.0
"""If the client has closed its end and no response is written for this long, the remaining input is dropped."""


class Stdio:
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
        """Create the transport.

        Args:
            dispatcher: Handles messages.
            streams: The descriptors to read and write.
            max_line: The maximum size of a message in bytes.
            max_unread: The maximum number of response bytes that wait for the client.
            scopes: The client's scopes. None for all.
            view: The client's view. None for the whole catalog.
        """
        self._max_line: Final = max_line
        self._dispatcher: Final = dispatcher
        self._reader: Final = LineReader(streams.reading, limit=max_line)
        self._writer: Final = LineWriter(streams.writing, max_waiting=max_unread)
        self._channel: Final = DuplexSession(
            dispatcher=dispatcher,
            caller=Caller(binding=Binding.STDIO, identity=Identity(scopes=scopes), view=view, address="stdio"),
            write=self._writer.write,
        )
        self._watch: asyncio.Task[None] | None = None
        self._write_timeout = AFTER_INPUT_SECONDS
        self._is_draining = self._has_drained = False
        """While draining, requests that open a session or subscription are refused. Later, all requests are refused."""

    @property
    def open_sessions(self) -> tuple[Session, ...]:
        return () if self._channel.session is None else (self._channel.session,)

    async def serve(self) -> None:
        """Serve until the input ends, the output is closed, or `close` is called."""
        self._watch = asyncio.get_running_loop().create_task(self._end_when_nobody_reads(), name="stdout watch")
        taken = 0
        while (line := await self._reader.next()) is not None:
            # Only `_wait_for_room` waits for the client to read.
            if (message := self._message(line)) is not None:
                await self._channel.handle(message)
            if not self._has_room:
                await self._wait_for_room()
            taken += 1
            # `next` does not suspend while lines are buffered, so let other tasks run.
            if taken % _LINES_OF_A_TURN == 0:
                await asyncio.sleep(0)
        await self._channel.drain(self._write_timeout)
        await self.close()

    async def drain(self, seconds: float) -> None:
        """Wait up to `seconds` for running and new calls. Then cancel the running calls and refuse new calls.

        Refused requests receive an error until the process exits, because the client would otherwise wait for a
        response.
        """
        self._write_timeout = seconds
        self._is_draining = True
        await self._channel.drain(seconds)
        self._has_drained = True
        await self._channel.cancel_all()

    async def close(self) -> None:
        self._reader.end()
        if self._watch is not None:
            self._watch.cancel()
        await self._channel.close()
        await self._writer.close(SHUTDOWN_GRACE_SECONDS)

    def _message(self, line: bytes) -> Received | None:
        """Decode a line. Return None for an empty line, or after refusing a line that is too long or a request."""
        if len(line) > self._max_line:
            why = f"The line is longer than {self._max_line} bytes (listen.max_body)"
            self._channel.refuse(RpcError(ErrorCode.INVALID_REQUEST, why))
            return None
        if not line.strip():
            return None
        message = self._dispatcher.decode(line)
        if isinstance(message, Request) and self._is_refused(message):
            self._channel.refuse(RpcError(ErrorCode.INTERNAL_ERROR, DRAINING.message), request_id=message.id)
            return None
        return message

    def _is_refused(self, request: Request) -> bool:
        return self._has_drained or (self._is_draining and request.method in OPENERS)

    async def _end_when_nobody_reads(self) -> None:
        await self._writer.gone.wait()
        self._reader.end()

    @property
    def _has_room(self) -> bool:
        return self._writer.has_capacity and self._channel.in_flight < MAX_IN_FLIGHT

    async def _wait_for_room(self) -> None:
        while not self._has_room:
            before = self._writer.written, self._channel.answered
            with suppress(TimeoutError):
                async with asyncio.timeout(STANDSTILL_SECONDS):
                    await self._wait_for_change()
            if (self._writer.written, self._channel.answered) == before and self._reader.is_hung_up:
                self._reader.end()
                return

    async def _wait_for_change(self) -> None:
        if not self._writer.has_capacity:
            await self._writer.wait_for_room()
        else:
            # No await since `in_flight` was read, so no event is missed.
            self._channel.one_is_done.clear()
            await self._channel.one_is_done.wait()
