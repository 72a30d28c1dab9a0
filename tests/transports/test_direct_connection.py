"""Plain POSTs pass aiohttp's own loop by: answered as it would, on connections that it goes on to serve.

The first tests look at what `DirectConnection` stands on, so that another aiohttp shows here and not in production.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import pytest
from aiohttp import web

from gateway.config.models.address import Address
from gateway.transports.listener.direct_connection import DirectConnection
from gateway.transports.listener.http_connection import ConnectionLimits
from gateway.transports.listener.http_listener import HttpListener

_BOUND_SECONDS: Final = 10.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def post(body: str = "one", *, target: str = "/direct", more: str = "") -> bytes:
    head = f"POST {target} HTTP/1.1\r\nHost: localhost\r\n{more}Content-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()


async def echo(request: web.Request) -> web.StreamResponse:
    return web.Response(text=await request.text())


class Client:
    """One connection, and the server's end of it."""

    def __init__(self, listener: HttpListener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._listener = listener
        self._reader = reader
        self._writer = writer

    @property
    def connection(self) -> DirectConnection:
        server = self._listener._runner.server
        assert server is not None
        [connection] = server.connections
        assert isinstance(connection, DirectConnection)
        return connection

    @property
    def served_by_aiohttp(self) -> int:
        """Requests that aiohttp's loop has taken: it counts them."""
        server = self._listener._runner.server
        assert server is not None
        return server.requests_count

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    def hang_up(self) -> None:
        self._writer.close()

    async def answer(self) -> str:
        """The body of the next response."""
        async with asyncio.timeout(_BOUND_SECONDS):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
            return (await self._reader.readexactly(length)).decode()

    async def rest(self) -> bytes:
        """What comes until the connection is closed."""
        async with asyncio.timeout(_BOUND_SECONDS):
            return await self._reader.read()


@asynccontextmanager
async def connected(handler: Handler = echo, limits: ConnectionLimits | None = None) -> AsyncIterator[Client]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", echo)
    listener = HttpListener(
        application, address=Address("127.0.0.1", 0), connection_limits=limits, direct={"/direct": handler}
    )
    await listener.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.address.port)
    try:
        yield Client(listener, reader, writer)
    finally:
        writer.close()
        await listener.close()


def test_aiohttp_has_the_parts_that_are_used() -> None:
    slots = {name for base in web.RequestHandler.__mro__ for name in getattr(base, "__slots__", ())}
    assert slots >= {
        *("_waiter", "_messages", "_parser", "_request_factory", "_task_handler", "_close", "_force_close", "_loop"),
        *("_keepalive_handle", "_keepalive_timeout", "_next_keepalive_close_time"),
    }
    assert callable(web.RequestHandler._handle_request)
    assert callable(web.RequestHandler._process_keepalive)


async def test_the_loop_of_aiohttp_sleeps_while_a_plain_post_is_answered() -> None:
    async with connected() as client:
        client.send(post())
        assert await client.answer() == "one"
        assert client.served_by_aiohttp == 0
        waiter = client.connection._waiter
        assert waiter is not None
        assert not waiter.done()
        client.send(post(target="/other"))
        assert await client.answer() == "one"
        assert client.served_by_aiohttp == 1


@pytest.mark.parametrize(
    "request_in_parts",
    [
        pytest.param([b"GET /direct HTTP/1.1\r\nHost: localhost\r\n\r\n"], id="another method"),
        pytest.param([post(target="/direct?a=b")], id="another target"),
        pytest.param([post()[:-1], post()[-1:]], id="a body in two parts"),
        pytest.param(
            [b"POST /direct HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\n"],
            id="chunks",
        ),
        pytest.param([post(more="Connection: close\r\n")], id="a connection that is to close"),
        pytest.param([post().replace(b"HTTP/1.1", b"HTTP/1.0")], id="HTTP/1.0"),
        pytest.param([post(more="Connection: upgrade\r\nUpgrade: websocket\r\n")], id="an upgrade"),
        pytest.param([b"\x16\x03\x01 nonsense\r\n\r\n"], id="no head"),
    ],
)
async def test_what_is_not_plain_is_served_by_aiohttp(request_in_parts: list[bytes]) -> None:
    async with connected() as client:
        *begin, end = request_in_parts
        for part in begin:
            client.send(part)
            while not client.served_by_aiohttp:  # lest the parts come together
                await asyncio.sleep(0)
        client.send(end)
        await client.answer()
        assert client.served_by_aiohttp == 1


async def test_requests_that_come_together_are_answered_in_their_order() -> None:
    async with connected() as client:
        client.send(post("one") + post("two") + post("three"))
        assert [await client.answer() for _ in range(3)] == ["one", "two", "three"]
        client.send(post("four"))
        assert await client.answer() == "four"


async def test_requests_that_come_during_another_are_answered_after_it() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        begun.set()
        await go_on.wait()
        return await echo(request)

    async with connected(slow) as client:
        client.send(post("one"))
        await begun.wait()
        client.send(post("two", target="/other") + post("three"))
        while len(client.connection._messages) < 2:
            await asyncio.sleep(0)
        assert client.served_by_aiohttp == 0
        go_on.set()
        assert [await client.answer() for _ in range(3)] == ["one", "two", "three"]
        client.send(post("four"))
        assert await client.answer() == "four"


async def test_a_client_that_hangs_up_cancels_its_call() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless(_request: web.Request) -> web.StreamResponse:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    async with connected(endless) as client:
        client.send(post())
        await begun.wait()
        client.hang_up()
        async with asyncio.timeout(_BOUND_SECONDS):
            await ended.wait()


async def test_a_connection_is_idle_after_an_answer_and_not_before() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        begun.set()
        await go_on.wait()
        return await echo(request)

    async with connected(slow, ConnectionLimits(idle_seconds=0.05)) as client:
        client.send(post())
        await begun.wait()
        connection = client.connection
        while connection._keepalive_handle is not None:  # it was due, and looked
            await asyncio.sleep(0.01)
        assert connection.connected
        go_on.set()
        assert await client.answer() == "one"
        assert await client.rest() == b""


async def test_a_head_that_trickles_in_after_an_answer_is_given_up() -> None:
    async with connected(limits=ConnectionLimits(head_seconds=0.05)) as client:
        client.send(post())
        assert await client.answer() == "one"
        client.send(b"POST /direct HTTP/1.1\r\nHost")
        assert (await client.rest()).startswith(b"HTTP/1.1 408 ")


async def test_an_answer_that_closes_its_connection_closes_it() -> None:
    async def last(_request: web.Request) -> web.StreamResponse:
        response = web.Response(text="bye")
        response.force_close()
        return response

    async with connected(last) as client:
        client.send(post())
        assert await client.answer() == "bye"
        assert await client.rest() == b""


async def test_a_bug_of_a_handler_is_answered_and_closes_its_connection() -> None:
    async def broken(_request: web.Request) -> web.StreamResponse:
        raise ValueError("a bug")

    async with connected(broken) as client:
        client.send(post())
        assert "Internal error" in await client.answer()
        assert await client.rest() == b""


async def test_the_end_of_the_listener_waits_for_the_call_and_closes_the_connection() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        begun.set()
        await go_on.wait()
        return await echo(request)

    async with connected(slow) as client:
        client.send(post())
        await begun.wait()
        closing = asyncio.ensure_future(client._listener.close())
        while not client.connection._close:
            await asyncio.sleep(0)
        go_on.set()
        assert await client.answer() == "one"
        assert await client.rest() == b""
        await closing
