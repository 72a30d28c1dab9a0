"""Requests and responses on the wire."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from yarl import URL

from gateway.net.address_guard import AddressGuard
from gateway.net.clients import Answer, BodyTooLargeError, ClientProfile, HttpClients, Pool
from gateway.net.request import Request, bound

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[URL]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server, asyncio.timeout(30):
        yield URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/a%2Fb?c=%20")


@asynccontextmanager
async def pool_of(*, proxy: str | None = None) -> AsyncIterator[Pool]:
    async with HttpClients() as clients:
        yield clients.pool(ClientProfile(guard=AddressGuard(allows_all=True), proxy=proxy))


async def said(pool: Pool, url: URL, method: str = "GET", body: bytes | None = None) -> bytes:
    async with pool.request(Request(method=method, url=url, headers=bound({"X-A": "b"}), body=body)) as answer:
        return await answer.read()


@pytest.mark.parametrize(
    ("method", "body", "length"),
    [("GET", None, None), ("POST", None, b"0"), ("POST", b"{}", b"2"), ("GET", b"x", b"1")],
)
async def test_request_has_required_headers_in_one_write(method: str, body: bytes | None, length: bytes | None) -> None:
    came: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65536):
            came.append(chunk)
            writer.write(OK)

    async with serving(serve) as url, pool_of() as pool:
        assert await said(pool, url, method, body) == b"ok"
        assert await said(pool, url, method, body) == b"ok"
    assert len(came) == 2
    head, _, rest = came[0].partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    fields = dict(line.split(b": ", 1) for line in lines)
    assert first == f"{method} /a%2Fb?c=%20 HTTP/1.1".encode()
    assert fields.pop(b"User-Agent").startswith(b"mcp-gateway/")
    assert fields.pop(b"Accept-Encoding").startswith(b"gzip")
    assert fields.pop(b"Content-Length", None) == length
    assert fields == {b"Host": url.authority.encode(), b"Accept": b"*/*", b"X-A": b"b"}
    assert rest == (body or b"")


async def test_given_headers_replace_default_headers() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(head), head))
        await reader.read()

    async with serving(serve) as url, pool_of() as pool:
        given = bound({"user-agent": "mine", "HOST": "other.example", "accept": "text/plain"})
        async with pool.request(Request(method="GET", url=url, headers=given)) as answer:
            head = await answer.read()
    lower = head.lower()
    assert [lower.count(b"\r\n" + name) for name in (b"user-agent:", b"host:", b"accept:")] == [1, 1, 1]
    assert b"HOST: other.example" in head


@pytest.mark.parametrize("value", ["a\r\nX-B: c", "a\nb", "a\rb", "a\0b"])
async def test_header_field_with_a_line_break_is_never_sent(value: str) -> None:
    async def serve(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        assert await reader.read() == b""

    async with serving(serve) as url, pool_of() as pool:
        with pytest.raises(ValueError, match="control character"):
            async with pool.request(Request(method="GET", url=url, headers=bound({"X-A": value}))):
                pass


@pytest.mark.parametrize(("method", "is_repeated"), [("GET", True), ("PUT", True), ("POST", False)])
async def test_closed_idle_connection_is_replaced(method: str, *, is_repeated: bool) -> None:
    """RFC 9112 §9.3.1: a request that was possibly processed is only repeated if it is idempotent."""
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await reader.readuntil(b"\r\n\r\n")  # and closes the connection instead of responding

    async with serving(serve) as url, pool_of() as pool:
        assert await said(pool, url, method) == b"ok"
        if is_repeated:
            assert await said(pool, url, method) == b"ok"
            assert connections == 2
        else:
            with pytest.raises(aiohttp.ServerDisconnectedError):
                await said(pool, url, method)
            assert connections == 1


async def test_connection_with_unread_data_is_not_reused() -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + b"x" * 50)
        assert await reader.read() == b""

    async with serving(serve) as url, pool_of() as pool:
        for _ in range(2):
            async with pool.request(Request(method="GET", url=url, headers=())) as answer:
                assert answer.status == 200
            with pytest.raises(BodyTooLargeError):
                async with pool.request(Request(method="GET", url=url, headers=())) as answer:
                    await Answer(answer.status, "", answer.headers, answer.content).read(max_bytes=10)
    assert connections == 4


async def test_proxy_gets_the_whole_url_and_its_credentials() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(head), head))

    async with serving(serve) as url, pool_of(proxy=f"http://user:pass@{url.authority}") as pool:
        for _ in range(2):
            head = await said(pool, URL("http://service.example:8080/x?y"))
            assert head.startswith(b"GET http://service.example:8080/x?y HTTP/1.1\r\n")
            assert b"\r\nHost: service.example:8080\r\n" in head
            assert b"\r\nProxy-Authorization: Basic dXNlcjpwYXNz\r\n" in head


async def test_proxy_tunnels_https() -> None:
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")

    async with serving(serve) as url, pool_of(proxy=f"http://user:pass@{url.authority}") as pool:
        with pytest.raises(aiohttp.ClientHttpProxyError):
            await said(pool, URL("https://service.example/"))
    assert heads[0].startswith(b"CONNECT service.example:443 HTTP/1.1\r\n")
    assert b"\r\nProxy-Authorization: Basic dXNlcjpwYXNz\r\n" in heads[0]
