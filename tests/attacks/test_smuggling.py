"""Requests that two parsers could read differently are rejected, directly and behind nginx.

Each request hides a second one. The daemon must respond only once and close the connection.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import orjson
import pytest
import pytest_asyncio

from tests.interop.nginx import nginx
from tests.messages import initialize_request
from tests.transports.http_server import RunningServer, http_server

HOST: Final = b"Host: 127.0.0.1\r\n"
HIDDEN: Final = b"GET /-/healthy HTTP/1.1\r\n" + HOST + b"\r\n"
POST: Final = b"POST /mcp HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
END: Final = b"\r\n\r\n"
CHUNKS: Final = b"2\r\n{}\r\n0\r\n\r\n"
CHUNKED: Final = b"Transfer-Encoding: chunked"
TWO: Final = b"Content-Length: 2"

AMBIGUOUS: Final = {
    "length and chunked": POST + b"Content-Length: 4\r\n" + CHUNKED + END + b"0\r\n\r\n",
    "chunked and length": POST + CHUNKED + b"\r\nContent-Length: 4" + END + b"0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 0\r\nContent-Length: 60" + END,
    "one length twice": POST + TWO + b"\r\n" + TWO + END + b"{}",
    "a list of lengths": POST + b"Content-Length: 2, 2" + END + b"{}",
    "a length with a sign": POST + b"Content-Length: +2" + END + b"{}",
    "a negative length": POST + b"Content-Length: -1" + END + b"{}",
    "a hexadecimal length": POST + b"Content-Length: 0x2" + END + b"{}",
    "an empty length": POST + b"Content-Length: " + END + b"{}",
    "a length with an underscore": POST + b"Content-Length: 0_2" + END + b"{}",
    "a length with a space": POST + b"Content-Length: 1 0" + END + b"{}",
    "a length that overflows": POST + b"Content-Length: 18446744073709551618" + END + b"{}",
    "an unknown coding": POST + b"Transfer-Encoding: xchunked" + END + CHUNKS,
    "identity": POST + b"Transfer-Encoding: identity" + END + CHUNKS,
    "chunked not last": POST + b"Transfer-Encoding: chunked, identity" + END + CHUNKS,
    "chunked twice": POST + CHUNKED + b"\r\n" + CHUNKED + END + CHUNKS,
    "two codings": POST + CHUNKED + b"\r\nTransfer-Encoding: identity" + END + CHUNKS,
    "a vertical tab before chunked": POST + b"Transfer-Encoding: \x0bchunked" + END + CHUNKS,
    "a space before the colon": POST + b"Transfer-Encoding : chunked\r\nContent-Length: 5" + END + CHUNKS,
    "a folded coding": POST + b"Transfer-Encoding:\r\n chunked\r\nContent-Length: 5" + END + CHUNKS,
    "a folded field": POST + b"X-A: 1\r\n two\r\n" + TWO + END + b"{}",
    "chunks in HTTP/1.0": POST.replace(b"1.1", b"1.0") + CHUNKED + END + CHUNKS,
    "bare line feeds": (POST + TWO + END).replace(b"\r", b"") + b"{}",
    "one bare line feed": POST + b"X-A: 1\n" + TWO + END + b"{}",
    "a bare carriage return": POST + b"X-A: 1\rContent-Length: 60\r\nContent-Length: 0" + END,
    "a NUL in a field": POST + b"X-A: 1\x00\r\n" + TWO + END + b"{}",
    "a field without a colon": POST + b"garbage\r\n" + TWO + END + b"{}",
    "a name with a space": POST + b"X A: x\r\n" + TWO + END + b"{}",
    "a field without a name": POST + b": x\r\n" + TWO + END + b"{}",
    "a space before the first field": b"POST /mcp HTTP/1.1\r\n X: 1\r\n" + HOST + TWO + END + b"{}",
    "a chunk that ends in a line feed": POST + CHUNKED + END + b"2\n{}\n0\n\n",
    "an extension that ends in a line feed": POST + CHUNKED + END + b"2;a\n{}\r\n0\r\n\r\n",
    "a chunk's size with 0x": POST + CHUNKED + END + b"0x2\r\n{}\r\n0\r\n\r\n",
    "a chunk's size with a sign": POST + CHUNKED + END + b"+2\r\n{}\r\n0\r\n\r\n",
    "a chunk's size with a space": POST + CHUNKED + END + b"2 \r\n{}\r\n0\r\n\r\n",
    "a chunk's size that overflows": POST + CHUNKED + END + b"10000000000000002\r\n{}\r\n0\r\n\r\n",
    "a very long chunk size": POST + CHUNKED + END + b"f" * 40 + b"\r\nhello",
    "a chunk longer than its size": POST + CHUNKED + END + b"2\r\n{}xx\r\n0\r\n\r\n",
    "two hosts": b"GET /-/healthy HTTP/1.1\r\n" + HOST + b"Host: evil.example.com" + END,
    "no host": b"GET /-/healthy HTTP/1.1" + END,
    "a space in the target": b"GET /-/healthy x HTTP/1.1\r\n" + HOST + b"\r\n",
    "a control character in the target": b"GET /-/heal\x01thy HTTP/1.1\r\n" + HOST + b"\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "another version": b"GET /-/healthy HTTP/3.7\r\n" + HOST + b"\r\n",
}
PLAIN: Final = {
    "a length": POST + TWO + END + b"{}",
    "chunks": POST + CHUNKED + END + CHUNKS,
    "chunks in upper case": POST + b"Transfer-Encoding: cHuNkEd" + END + CHUNKS,
    "chunks with extensions": POST + CHUNKED + END + b"2;a=b\r\n{}\r\n0\r\n\r\n",
    "an unexpected body": b"GET /-/healthy HTTP/1.1\r\n" + HOST + TWO + END + b"{}",
    "empty lines before": b"\r\n\r\nGET /-/healthy HTTP/1.1\r\n" + HOST + b"\r\n",
}
"""Valid requests that can be followed by another one."""


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[RunningServer]:
    """A shared server. Each test uses new connections."""
    async with http_server() as it:
        yield it


async def statuses(port: int, sent: bytes, *, most: int) -> tuple[list[int], bool]:
    """Read up to this number of responses. Return their statuses, and whether the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    heard = b""
    try:
        async with asyncio.timeout(10):
            while len(_statuses(heard)) < most and (more := await reader.read(65536)):
                heard += more
    except ConnectionResetError:
        more = b""
    finally:
        writer.close()
    return _statuses(heard), not more


def _statuses(heard: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] ([0-9]{3})", heard)]


@pytest.mark.parametrize("name", AMBIGUOUS)
async def test_ambiguous_request_closes_the_connection(served: RunningServer, name: str) -> None:
    answers, is_closed = await statuses(served.address.port, AMBIGUOUS[name] + HIDDEN, most=2)
    assert (answers, is_closed) == ([400], True)


@pytest.mark.parametrize("name", PLAIN)
async def test_pipelined_requests_get_responses(served: RunningServer, name: str) -> None:
    answers, _ = await statuses(served.address.port, PLAIN[name] + HIDDEN, most=2)
    assert len(answers) == 2
    assert answers[1] == 200


async def test_unknown_transfer_coding_is_rejected(served: RunningServer) -> None:
    sent = POST + b"Transfer-Encoding: gzip, chunked" + END + CHUNKS
    assert (await statuses(served.address.port, sent + HIDDEN, most=1))[0][0] == 501


async def test_http_0_9_is_rejected(served: RunningServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.address.port)
    writer.write(b"GET /mcp\r\n\r\n")
    async with asyncio.timeout(10):
        assert b"HTTP/1.1 is required" in await reader.read()
    writer.close()


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        (b"http://evil.example.com/mcp", b"127.0.0.1", 421),
        (b"http://evil.example.com@127.0.0.1/mcp", b"127.0.0.1", 421),
        (b"http://evil.example.com?/mcp", b"127.0.0.1", 404),
        (b"http://127.0.0.1/-/status", b"evil.example.com", 404),
        (b"http://127.0.0.1/-/status", b"127.0.0.1", 200),
        (b"http://xn--/-/status", b"127.0.0.1", 421),  # not a valid internationalized name
        (b"http://xn--a:80/-/status", b"xn--a", 421),
        (b"http://xn--", b"xn--", 404),
    ],
)
async def test_host_of_an_absolute_target_takes_precedence(
    served: RunningServer, target: bytes, host: bytes, status: int
) -> None:
    sent = b"GET " + target + b" HTTP/1.1\r\nHost: " + host + END
    assert (await statuses(served.address.port, sent, most=1))[0] == [status]


async def test_connect_request_with_any_authority_gets_a_response(served: RunningServer) -> None:
    for authority in (b"xn--:443", b"xn--a:443", b"[::1]:443", b"evil.example.com:443"):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.address.port)
        writer.write(b"CONNECT " + authority + b" HTTP/1.1\r\nHost: " + authority + END)
        async with asyncio.timeout(10):
            assert (await reader.readline()).split(b" ")[1] in {b"404", b"421"}
        writer.close()


async def test_upgrade_is_ignored_and_its_body_is_read(served: RunningServer) -> None:
    """Java's HTTP client sends such requests by default."""
    body = orjson.dumps(initialize_request())
    reader, writer = await asyncio.open_connection("127.0.0.1", served.address.port)
    fields = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
    writer.write(POST + fields + b"Content-Length: %d" % len(body) + END + body)
    async with asyncio.timeout(10):
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert b'"result"' in await reader.readuntil(b"}}}")
        writer.write(HIDDEN)  # the connection was not upgraded
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()


@pytest.mark.parametrize("sent", [*AMBIGUOUS.values(), b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n"])
async def test_responses_do_not_name_the_server_software(served: RunningServer, sent: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.address.port)
    writer.write(sent)
    async with asyncio.timeout(10):
        head = (await reader.readuntil(END)).lower()
    writer.close()
    assert b"server: mcp-gateway\r\n" in head
    assert b"aiohttp" not in head


async def test_nginx_receives_no_response_to_a_smuggled_request(tmp_path: Path) -> None:
    """Nginx reuses connections, so the next client could get the response to a hidden request."""
    async with http_server(allowed_hosts=["*"]) as served, nginx(tmp_path, daemon=str(served.address)) as proxy:
        for name, ambiguous in {**AMBIGUOUS, **PLAIN}.items():
            hidden = b"GET /hidden-in-the-body HTTP/1.1\r\n" + HOST + b"\r\n"
            await statuses(proxy.port, ambiguous + hidden, most=1)
            for _ in range(2):
                answer = await served.client.post(f"{proxy.url}/mcp", json=initialize_request())
                assert answer.status == 200, name
                assert (await answer.json())["id"] == 0, name
