"""Tests for connection limits: slow heads, missing bodies, and too many connections."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import orjson
import pytest

from gateway.config.models.server import Quota
from gateway.transports.listener import http_connection
from gateway.transports.listener.http_connection import ConnectionLimits
from gateway.transports.quota import connection_quota
from tests.messages import initialize_request
from tests.transports.http_server import RunningServer, http_server
from tests.waiting import until

SECONDS: Final = 20
HEAD: Final = b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n"


class Line:
    """A raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer: Final = writer
        self._reader: Final = reader

    def say(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> bytes:
        """Return the head and body of one response."""
        async with asyncio.timeout(SECONDS):
            head = await self._reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            return head + await self._reader.readexactly(int(length.partition(b":")[2]))

    async def rest(self) -> bytes:
        """Return everything until the connection closes."""
        async with asyncio.timeout(SECONDS):
            return await self._reader.read()


@asynccontextmanager
async def line(served: RunningServer, address: str = "127.0.0.1") -> AsyncIterator[Line]:
    place = served.address
    reader, writer = await asyncio.open_connection(place.host, place.port, local_addr=(address, 0))
    try:
        yield Line(reader, writer)
    finally:
        writer.close()


def few(*, in_all: int | None = None, per_caller: int | None = None) -> ConnectionLimits:
    return ConnectionLimits(quota=connection_quota(Quota(in_all=in_all, per_caller=per_caller)))


@pytest.mark.parametrize("cut", [1, len(HEAD), len(HEAD) + 1])
async def test_head_in_several_chunks_is_accepted(cut: int) -> None:
    async with http_server() as served, line(served) as patient:
        whole = HEAD + b"\r\n"
        for piece in (whole[:cut], whole[cut:]):
            patient.say(piece)
            await asyncio.sleep(0.05)
        assert (await patient.answer()).startswith(b"HTTP/1.1 200 ")


POST: Final = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    ("first", "status", "rest"),
    [
        (HEAD + b"\r\n", b"200", HEAD),
        (POST + b"Content-Type: text/plain\r\nContent-Length: 9\r\n\r\nnot JSON.", b"415", HEAD),
        (HEAD + b"\r\n" + HEAD[:9], b"200", HEAD[9:]),
        (HEAD + b"\r\n\r\n", b"200", HEAD),
    ],
    ids=["a head", "a body", "a part of the next head", "an empty line"],
)
async def test_slow_later_head_returns_408(first: bytes, status: bytes, rest: bytes) -> None:
    async with http_server(connection_limits=ConnectionLimits(head_seconds=0.5)) as served, line(served) as slow:
        slow.say(first)
        assert (await slow.answer()).startswith(b"HTTP/1.1 " + status)
        await asyncio.sleep(0.6)  # idle connections have more time
        for byte in rest:
            slow.say(bytes([byte]))
            await asyncio.sleep(0)
        assert b"listen.receive_timeout" in await slow.rest()


async def test_head_timeout_does_not_apply_to_a_busy_connection() -> None:
    body = POST + b"Content-Type: application/json\r\nContent-Length: 40\r\n\r\n"
    async with (
        http_server(connection_limits=ConnectionLimits(head_seconds=0.5), receive_seconds=9) as served,
        line(served) as busy,
    ):
        busy.say(HEAD + b"\r\n" + HEAD + b"\r\n" + body)
        assert (await busy.answer()).startswith(b"HTTP/1.1 200 ")
        assert (await busy.answer()).startswith(b"HTTP/1.1 200 ")
        for byte in b" " * 40:
            busy.say(bytes([byte]))
            await asyncio.sleep(0.02)
        assert (await busy.answer()).startswith(b"HTTP/1.1 400 ")
        busy.say(b"\r\n")
        await asyncio.sleep(0.6)
        busy.say(HEAD[:20])
        await asyncio.sleep(0.05)
        busy.say(HEAD[20:] + b"\r\n")
        assert (await busy.answer()).startswith(b"HTTP/1.1 200 ")


async def test_idle_connection_is_closed() -> None:
    async with http_server(connection_limits=ConnectionLimits(idle_seconds=0.05)) as served, line(served) as idle:
        idle.say(HEAD + b"\r\n")
        assert (await idle.answer()).startswith(b"HTTP/1.1 200 ")
        idle.say(HEAD)  # incomplete heads do not count
        assert await idle.rest() == b""


async def test_slow_body_returns_408_and_its_rest_is_not_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "_LINGER_SECONDS", 3600.0)
    async with (
        http_server(receive_seconds=0.05, connection_limits=ConnectionLimits(head_seconds=0.5)) as served,
        line(served) as slow,
    ):
        slow.say(
            b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
        )
        told = await slow.rest()
    assert told.startswith(b"HTTP/1.1 408 ")
    assert b"listen.receive_timeout" in told


async def test_closed_connections_free_their_quota() -> None:
    async with http_server(connection_limits=few(in_all=1)) as served:
        for _ in range(3):
            async with line(served) as only:
                async with line(served) as one_too_many:
                    assert b"All 1 connections are in use (limits.connections)" in await one_too_many.rest()
                only.say(HEAD + b"Connection: close\r\n\r\n")
                assert (await only.rest()).startswith(b"HTTP/1.1 200 ")


async def test_loopback_has_no_connection_limit_by_default() -> None:
    quota = connection_quota(Quota(in_all=202))
    assert quota.per_caller == 101
    async with http_server(connection_limits=ConnectionLimits(quota=quota)) as served, AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(line(served)) for _ in range(150)]
        for each in lines:
            each.say(HEAD + b"\r\n")
        assert {(await each.answer())[:13] for each in lines} == {b"HTTP/1.1 200 "}


def test_connections_of_trusted_proxies_have_no_limit_per_caller() -> None:
    quota = connection_quota(Quota(in_all=1000), has_proxies=True)
    assert (quota.in_all, quota.per_caller) == (1000, 1000)
    assert connection_quota(Quota(in_all=1000, per_caller=7), has_proxies=True).per_caller == 7


@pytest.mark.parametrize(
    ("flood", "status"),
    [
        (b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\n\r\n", b"400"),
        (HEAD + b"X-Long: " + b"a" * 10_000 + b"\r\n\r\n", b"400"),
        (HEAD + b"".join(b"X-%d: a\r\n" % number for number in range(200)) + b"\r\n", b"400"),
        (HEAD + b"\r\n", b"200"),
        (HEAD + b"".join(b"X-%d: a\r\n" % number for number in range(100)) + b"\r\n", b"200"),
        (HEAD + b"X-Long: " + b"a" * 8000 + b"\r\n\r\n", b"200"),
    ],
    ids=["long line", "long field", "many fields", "control", "control of many", "control of long"],
)
async def test_heads_are_limited(flood: bytes, status: bytes) -> None:
    async with http_server() as served, line(served) as one:
        one.say(flood)
        told = await one.answer()
        assert told.split(b" ", 2)[1] == status
        assert (b"8190 bytes per line, 128 headers" in told) == (status == b"400")
        assert b"aiohttp" not in told


@pytest.mark.parametrize("target", [b"http://[]@/mcp", b"http://[::1/mcp", b"http://h:x/mcp", b"a"])
async def test_invalid_target_returns_400(caplog: pytest.LogCaptureFixture, target: bytes) -> None:
    async with http_server() as served, line(served) as one:
        one.say(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await one.answer()).split(b" ", 2)[1] == b"400"
    assert not caplog.records


CHUNKED: Final = (
    b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Accept: application/json, text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
PING: Final = orjson.dumps(initialize_request())


def chunked(body: bytes, *, size: int, extension: bytes = b"", trailer: bytes = b"") -> bytes:
    """Encode a body in chunks. Parameters are functions, so that collecting tests is cheap."""
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    chunks = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces)
    return CHUNKED + chunks + b"0\r\n" + trailer + b"\r\n"


@pytest.mark.parametrize(
    "make",
    [
        lambda: chunked(b"{}", size=1, extension=b";x=" + b"y" * 400_000),
        lambda: chunked(PING, size=len(PING), extension=b";x=" + b"y" * 1_000_000),
        lambda: CHUNKED + b"2;x=" + b"y" * 3_000_000,
        lambda: chunked(PING, size=1, extension=b";" + b"y" * 2_000),
    ],
    ids=["for two bytes", "for one message", "endless", "a little for each byte"],
)
async def test_body_with_excessive_chunk_framing_is_rejected(make: Callable[[], bytes]) -> None:
    sent = make()
    async with http_server() as served, line(served) as greedy:
        greedy.say(sent[:1000])
        await until(lambda: len(served.active_requests))
        for start in range(1000, len(sent), 64_000):
            greedy.say(sent[start : start + 64_000])
            await asyncio.sleep(0)
        answer = await greedy.answer()
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"framing of the body is much larger" in answer


@pytest.mark.parametrize(
    "make",
    [
        lambda: chunked(PING, size=1),
        lambda: chunked(PING, size=7, extension=b";name=value"),
        lambda: chunked(PING, size=len(PING), extension=b";x=" + b"y" * 60_000),
        lambda: chunked(PING + b" " * 900_000, size=1),
        lambda: chunked(PING + b" " * 900_000, size=65_536, trailer=b"X-Sum: 1\r\n"),
    ],
    ids=["byte by byte", "extensions", "one long extension", "many bytes", "large chunks"],
)
async def test_chunks_of_any_size_form_one_body(make: Callable[[], bytes]) -> None:
    sent = make()
    async with http_server() as served, line(served) as patient:
        patient.say(sent)
        assert (await patient.answer()).startswith(b"HTTP/1.1 200 ")
        patient.say(chunked(PING, size=1) + HEAD + b"\r\n")  # the connection stays usable
        assert (await patient.answer()).startswith(b"HTTP/1.1 200 ")
        assert (await patient.answer()).startswith(b"HTTP/1.1 200 ")
