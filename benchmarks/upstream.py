"""The service behind the HTTP tool: a cheap server with a fixed response."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, cast

_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"


class _Service(asyncio.Protocol):
    """Handles requests without a body."""

    def __init__(self) -> None:
        self._rest = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports are not subclasses

    def data_received(self, data: bytes) -> None:
        *requests, self._rest = (self._rest + data).split(b"\r\n\r\n")
        self._transport.write(_ANSWER * len(requests))


@asynccontextmanager
async def upstream() -> AsyncIterator[str]:
    """Serve on loopback and yield the URL."""
    server = await asyncio.get_running_loop().create_server(_Service, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
