"""A minimal HTTP/1.1 client that uses little CPU time."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final, Self, cast

from benchmarks.processes import TIMEOUT_SECONDS

_LENGTH: Final = re.compile(rb"content-length: *([0-9]+)", re.IGNORECASE)
_SESSION: Final = re.compile(rb"mcp-session-id: *([^\r]+)", re.IGNORECASE)
_LAST_CHUNK: Final = b"\r\n0\r\n\r\n"


class UnexpectedAnswerError(Exception):
    """The server did not respond as expected."""


@dataclass(frozen=True)
class Answer:
    """A whole response. Chunked bodies are not decoded."""

    head: bytes
    body: bytes

    @property
    def session(self) -> str | None:
        """The session id in the response, if any."""
        match = _SESSION.search(self.head)
        return None if match is None else match[1].decode()

    def checked(self) -> Self:
        """Raises: UnexpectedAnswerError: The response is not a result."""
        if self.head[9:12] != b"200" or b'"result":' not in self.body or b'"isError":true' in self.body:
            raise UnexpectedAnswerError((self.head + b"\n\n" + self.body[:2000]).decode(errors="replace"))
        return self


class Connection(asyncio.Protocol):
    """A connection with one request at a time."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._transport: asyncio.Transport
        self._head_end = -1
        self._whole: asyncio.Future[Answer] | None = None
        self._begun: asyncio.Future[None] | None = None

    async def ask(self, request: bytes) -> Answer:
        self._whole = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._whole

    async def open_stream(self, request: bytes) -> None:
        """Wait for the start of an endless response."""
        self._begun = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        await self._begun

    def close(self) -> None:
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports are not subclasses

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._head_end < 0:
            self._head_end = self._buffer.find(b"\r\n\r\n")
        if self._head_end < 0:
            return
        if self._begun is not None and not self._begun.done():
            self._begun.set_result(None)
        if self._whole is not None and self._is_whole():
            answer = Answer(bytes(self._buffer[: self._head_end]), bytes(self._buffer[self._head_end + 4 :]))
            self._buffer.clear()
            self._head_end = -1
            self._whole.set_result(answer)
            self._whole = None

    def connection_lost(self, exc: Exception | None) -> None:
        for waiting in (self._whole, self._begun):
            if waiting is not None and not waiting.done():
                waiting.set_exception(exc or ConnectionResetError("the server hung up"))

    def _is_whole(self) -> bool:
        length = _LENGTH.search(self._buffer, 0, self._head_end)
        if length is None:
            return self._buffer.endswith(_LAST_CHUNK)
        return len(self._buffer) >= self._head_end + 4 + int(length[1])


@asynccontextmanager
async def connected(port: int, *, count: int) -> AsyncIterator[list[Connection]]:
    connections = []
    with ExitStack() as stack:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            for _ in range(count):
                _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
                stack.callback(connection.close)
                connections.append(connection)
        yield connections
