"""Tokens for other services: fetched once for all who ask, and what a service says of who issues them is data."""

import asyncio
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from multidict import CIMultiDict

from gateway.errors import ExecutionError
from gateway.net.address_guard import AddressGuard, AddressPolicy
from gateway.net.clients import HttpClients
from gateway.net.outbound_tokens import SharedFetches
from gateway.net.sender import Sender
from gateway.net.server_metadata import discover_of_service
from tests.local_server import listening


@dataclass
class Source:
    """Gives a new number for each fetch, once it may."""

    seconds: float = 60
    error: Exception | None = None
    fetches: int = 0
    free: asyncio.Event = field(default_factory=asyncio.Event)

    async def fetch(self) -> tuple[int, float]:
        self.fetches += 1
        await self.free.wait()
        if self.error is not None:
            raise self.error
        return self.fetches, self.seconds


@dataclass
class Clock:
    now: float = 0

    def __call__(self) -> float:
        return self.now


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_those_who_wait_share_one_fetch_and_a_cancelled_one_ends_it_for_nobody() -> None:
    source, shared = Source(), SharedFetches[int]()
    waiting = [asyncio.create_task(shared.get(b"key", source.fetch)) for _ in range(5)]
    await _turns()
    waiting[0].cancel()
    await _turns()
    assert waiting[0].cancelled()
    source.free.set()
    assert await asyncio.gather(*waiting[1:]) == [1] * 4
    assert await shared.get(b"key", source.fetch) == 1


async def test_a_fetch_for_which_nobody_waits_any_more_is_kept_for_the_next() -> None:
    source, shared = Source(), SharedFetches[int]()
    alone = asyncio.create_task(shared.get(b"key", source.fetch))
    await _turns()
    alone.cancel()
    source.free.set()
    await _turns()
    assert await shared.get(b"key", source.fetch) == 1


async def test_a_failed_fetch_is_told_to_all_who_waited_and_tried_again_by_the_next() -> None:
    source, shared = Source(error=ExecutionError("not now")), SharedFetches[int]()
    waiting = [asyncio.create_task(shared.get(b"key", source.fetch)) for _ in range(3)]
    await _turns()
    source.free.set()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(each) for each in results] == ["not now"] * 3
    assert len(set(map(id, results))) == 3  # each raises its own, which gets a traceback of its own
    source.error = None
    assert await shared.get(b"key", source.fetch) == 2


async def test_what_is_kept_expires_and_what_is_not_to_be_kept_is_not() -> None:
    clock = Clock()
    source, shared = Source(), SharedFetches[int](clock=clock)
    source.free.set()
    assert await shared.get(b"key", source.fetch) == 1
    clock.now = 59.9
    assert await shared.get(b"key", source.fetch) == 1
    clock.now = 60.0
    assert await shared.get(b"key", source.fetch) == 2
    source.seconds = 0
    assert await shared.get(b"other", source.fetch) == 3
    assert await shared.get(b"other", source.fetch) == 4


async def test_a_value_is_discarded_only_while_it_is_the_one_that_is_kept() -> None:
    source, shared = Source(), SharedFetches[int]()
    source.free.set()
    old = await shared.get(b"key", source.fetch)
    shared.discard(b"key", lambda kept: kept == old)
    new = await shared.get(b"key", source.fetch)
    shared.discard(b"key", lambda kept: kept == old)  # somebody else who was refused with the old one
    assert await shared.get(b"key", source.fetch) == new


async def test_the_end_of_the_daemon_ends_a_fetch_and_tells_those_who_wait() -> None:
    source, shared = Source(), SharedFetches[int]()
    waiting = asyncio.create_task(shared.get(b"key", source.fetch))
    await _turns()
    await shared.close()
    with pytest.raises(ExecutionError, match="stopped"):
        await waiting


async def test_no_challenge_of_a_service_holds_up_others() -> None:
    """Fields without an end to their names: each took three seconds and a half, in which nothing else ran."""

    async def refuse(_request: web.Request) -> web.Response:
        return web.Response(status=401, headers=CIMultiDict([("WWW-Authenticate", "a" * 8000)] * 20))

    app = web.Application()
    app.router.add_get("/{path:.*}", refuse)
    policy = AddressPolicy(guard=AddressGuard(allows_all=True))
    async with listening(app) as port, HttpClients() as clients:
        with pytest.raises(ExecutionError, match="does not say which authorization server"):
            async with asyncio.timeout(30):
                await discover_of_service(f"http://127.0.0.1:{port}/api", Sender(clients=clients, policy=policy))
