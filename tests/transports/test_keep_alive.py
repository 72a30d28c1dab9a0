"""Tests for keep-alive: response order, idle timeout, cancellation, and shutdown."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from gateway.config.models.address import Address
from gateway.transports.listener.http_connection import ConnectionLimits
from gateway.transports.listener.http_listener import HttpListener, ListenAddress

_BOUND_SECONDS: Final = 10.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def post(body: str = "one") -> bytes:
    head = f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()


async def echo(request: web.Request) -> web.StreamResponse:
    return web.Response(text=await request.text())


class Client:
    """A connection and its server side."""

    def __init__(self, listener: HttpListener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._listener = listener
        self._reader = reader
        self._writer = writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    def hang_up(self) -> None:
        self._writer.close()

    async def answer(self) -> str:
        """Return the body of the next response."""
        async with asyncio.timeout(_BOUND_SECONDS):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
            return (await self._reader.readexactly(length)).decode()

    async def rest(self) -> bytes:
        """Return everything until the connection closes."""
        async with asyncio.timeout(_BOUND_SECONDS):
            return await self._reader.read()


@asynccontextmanager
async def connected(handler: Handler = echo, limits: ConnectionLimits | None = None) -> AsyncIterator[Client]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    listener = HttpListener(
        application, ListenAddress(address=Address("127.0.0.1", 0)), connection_limits=limits or ConnectionLimits()
    )
    await listener.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.address.port)
    try:
        yield Client(listener, reader, writer)
    finally:
        writer.close()
        await listener.close()


async def test_pipelined_requests_get_responses_in_order() -> None:
    async with connected() as client:
        client.send(post("one") + post("two") + post("three"))
        assert [await client.answer() for _ in range(3)] == ["one", "two", "three"]
        client.send(post("four"))
        assert await client.answer() == "four"


async def test_idle_timeout_starts_after_the_response() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        begun.set()
        await go_on.wait()
        return await echo(request)

    async with connected(slow, ConnectionLimits(idle_seconds=0.05)) as client:
        client.send(post())
        await begun.wait()
        await asyncio.sleep(0.15)  # three times the idle timeout
        go_on.set()
        assert await client.answer() == "one"
        assert await client.rest() == b""


async def test_response_with_connection_close_closes_the_connection() -> None:
    async def last(_request: web.Request) -> web.StreamResponse:
        response = web.Response(text="bye")
        response.force_close()
        return response

    async with connected(last) as client:
        client.send(post())
        assert await client.answer() == "bye"
        assert await client.rest() == b""


async def test_handler_exception_returns_500_and_closes_the_connection() -> None:
    async def broken(_request: web.Request) -> web.StreamResponse:
        raise ValueError("a bug")

    async with connected(broken) as client:
        client.send(post())
        assert "Internal error" in await client.answer()
        assert await client.rest() == b""


async def test_closing_the_listener_waits_for_calls_and_closes_connections() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        begun.set()
        await go_on.wait()
        return await echo(request)

    async with connected(slow) as client:
        client.send(post())
        await begun.wait()
        closing = asyncio.ensure_future(client._listener.close())
        await asyncio.sleep(0)
        go_on.set()
        assert await client.answer() == "one"
        assert await client.rest() == b""
        await closing
