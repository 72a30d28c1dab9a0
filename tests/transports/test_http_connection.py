"""Connections: heads that trickle in, bodies that do not come, and one address that wants them all."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import pytest

from gateway.config.server import Shares
from gateway.transports.listener import http_connection
from gateway.transports.listener.http_connection import Threshold, connection_ration
from tests.transports.house import House, house

SECONDS: Final = 20
HEAD: Final = b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n"


class Line:
    """A bare connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer: Final = writer
        self._reader: Final = reader

    def say(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> bytes:
        """The head and body of one answer."""
        async with asyncio.timeout(SECONDS):
            head = await self._reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            return head + await self._reader.readexactly(int(length.partition(b":")[2]))

    async def rest(self) -> bytes:
        """Whatever comes until the other side closes."""
        async with asyncio.timeout(SECONDS):
            return await self._reader.read()


@asynccontextmanager
async def line(served: House, address: str = "127.0.0.1") -> AsyncIterator[Line]:
    place = served.address
    reader, writer = await asyncio.open_connection(place.host, place.port, local_addr=(address, 0))
    try:
        yield Line(reader, writer)
    finally:
        writer.close()


def few(*, in_all: int | None = None, per_caller: int | None = None) -> Threshold:
    return Threshold(ration=connection_ration(Shares(in_all=in_all, per_caller=per_caller)))


async def test_a_head_that_trickles_in_is_given_up_and_told_why() -> None:
    async with house(threshold=Threshold(head_seconds=0.2)) as served, line(served) as slow:
        for byte in HEAD:
            slow.say(bytes([byte]))
            await asyncio.sleep(0)
        told = await slow.rest()
    assert told.startswith(b"HTTP/1.1 408 ")
    assert b"listen.receive_timeout" in told


async def test_a_connection_that_says_nothing_is_closed_without_a_word() -> None:
    async with house(threshold=Threshold(head_seconds=0.05)) as served, line(served) as silent:
        assert await silent.rest() == b""


@pytest.mark.parametrize("cut", [1, len(HEAD), len(HEAD) + 1])
async def test_a_head_in_pieces_is_answered(cut: int) -> None:
    async with house() as served, line(served) as patient:
        whole = HEAD + b"\r\n"
        for piece in (whole[:cut], whole[cut:]):
            patient.say(piece)
            await asyncio.sleep(0.05)
        assert (await patient.answer()).startswith(b"HTTP/1.1 200 ")


async def test_a_connection_whose_first_head_came_stays() -> None:
    async with house(threshold=Threshold(head_seconds=1)) as served, line(served) as patient:
        patient.say(HEAD + b"\r\n")
        assert (await patient.answer()).startswith(b"HTTP/1.1 200 ")
        await asyncio.sleep(1.1)  # no longer than that may its first head have taken
        patient.say(HEAD + b"\r\n")
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
async def test_a_later_head_that_trickles_in_is_given_up_like_the_first(
    first: bytes, status: bytes, rest: bytes
) -> None:
    async with house(threshold=Threshold(head_seconds=0.5)) as served, line(served) as slow:
        slow.say(first)
        assert (await slow.answer()).startswith(b"HTTP/1.1 " + status)
        await asyncio.sleep(0.6)  # nothing is said, and that may take longer
        for byte in rest:
            slow.say(bytes([byte]))
            await asyncio.sleep(0)
        assert b"listen.receive_timeout" in await slow.rest()


async def test_heads_and_bodies_of_a_busy_connection_are_nobodys_delay() -> None:
    body = POST + b"Content-Type: application/json\r\nContent-Length: 40\r\n\r\n"
    async with house(threshold=Threshold(head_seconds=0.5), receive_seconds=9) as served, line(served) as busy:
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


async def test_a_connection_that_is_not_used_any_more_is_closed() -> None:
    async with house(threshold=Threshold(idle_seconds=0.05)) as served, line(served) as idle:
        idle.say(HEAD + b"\r\n")
        assert (await idle.answer()).startswith(b"HTTP/1.1 200 ")
        idle.say(HEAD)  # a head that is never whole counts as nothing
        assert await idle.rest() == b""


async def test_a_body_that_does_not_come_is_given_up_and_told_why() -> None:
    async with house(receive_seconds=0.05) as served, line(served) as slow:
        slow.say(
            b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
        )
        told = await slow.answer()
    assert told.startswith(b"HTTP/1.1 408 ")
    assert b"listen.receive_timeout" in told


async def test_the_rest_of_a_body_that_was_given_up_is_not_waited_for_any_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_connection, "_LINGER_SECONDS", 3600.0)
    async with house(receive_seconds=0.05, threshold=Threshold(head_seconds=0.5)) as served, line(served) as slow:
        slow.say(
            b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
        )
        assert (await slow.rest()).startswith(b"HTTP/1.1 408 ")


async def test_one_address_cannot_take_all_connections() -> None:
    async with (
        house(threshold=few(in_all=4, per_caller=2)) as served,
        line(served) as first,
        line(served) as second,
        line(served) as third,
    ):
        told = await third.rest()
        assert told.startswith(b"HTTP/1.1 503 ")
        assert b"2 connections are yours, and no caller has more (limits.connections.per_caller)" in told
        async with line(served, "127.0.0.2") as other:
            for working in (first, second, other):
                working.say(HEAD + b"\r\n")
                assert (await working.answer()).startswith(b"HTTP/1.1 200 ")


async def test_connections_that_are_closed_make_room() -> None:
    async with house(threshold=few(in_all=1)) as served:
        for _ in range(3):
            async with line(served) as only:
                async with line(served) as one_too_many:
                    assert b"All 1 connections are taken (limits.connections)" in await one_too_many.rest()
                only.say(HEAD + b"Connection: close\r\n\r\n")
                assert (await only.rest()).startswith(b"HTTP/1.1 200 ")


async def test_this_machine_has_no_share_unless_the_file_gives_it_one() -> None:
    ration = connection_ration(Shares(in_all=202))
    assert ration.per_caller == 101
    async with house(threshold=Threshold(ration=ration)) as served, AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(line(served)) for _ in range(150)]
        for each in lines:
            each.say(HEAD + b"\r\n")
        assert {(await each.answer())[:13] for each in lines} == {b"HTTP/1.1 200 "}


def test_where_proxies_are_named_their_connections_are_nobodys_share() -> None:
    ration = connection_ration(Shares(in_all=1000), has_proxies=True)
    assert (ration.in_all, ration.per_caller) == (1000, 1000)
    assert connection_ration(Shares(in_all=1000, per_caller=7), has_proxies=True).per_caller == 7


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
async def test_heads_are_bounded_in_every_direction(flood: bytes, status: bytes) -> None:
    async with house() as served, line(served) as one:
        one.say(flood)
        told = await one.answer()
        assert told.split(b" ", 2)[1] == status
        assert (b"8190 bytes for a line, 128 fields" in told) == (status == b"400")
        assert b"aiohttp" not in told
