"""Outbound tokens: fetched once for all waiters. Challenges are untrusted data."""

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
    """Returns a new number for each fetch, when released."""

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


async def test_waiters_share_one_fetch_that_survives_a_cancelled_waiter() -> None:
    source, shared = Source(), SharedFetches[int]()
    waiting = [asyncio.create_task(shared.get(b"key", source.fetch)) for _ in range(5)]
    await _turns()
    waiting[0].cancel()
    await _turns()
    assert waiting[0].cancelled()
    source.free.set()
    assert await asyncio.gather(*waiting[1:]) == [1] * 4
    assert await shared.get(b"key", source.fetch) == 1


async def test_abandoned_fetch_is_used_by_the_next_call() -> None:
    source, shared = Source(), SharedFetches[int]()
    alone = asyncio.create_task(shared.get(b"key", source.fetch))
    await _turns()
    alone.cancel()
    source.free.set()
    await _turns()
    assert await shared.get(b"key", source.fetch) == 1


async def test_failed_fetch_fails_all_waiters_and_the_next_call_retries() -> None:
    source, shared = Source(error=ExecutionError("not now")), SharedFetches[int]()
    waiting = [asyncio.create_task(shared.get(b"key", source.fetch)) for _ in range(3)]
    await _turns()
    source.free.set()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(each) for each in results] == ["not now"] * 3
    assert len(set(map(id, results))) == 3  # each raises a separate exception with its traceback
    source.error = None
    assert await shared.get(b"key", source.fetch) == 2


async def test_stored_token_expires_and_uncacheable_token_is_not_stored() -> None:
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


async def test_only_the_current_value_is_discarded() -> None:
    source, shared = Source(), SharedFetches[int]()
    source.free.set()
    old = await shared.get(b"key", source.fetch)
    shared.discard(b"key", lambda kept: kept == old)
    new = await shared.get(b"key", source.fetch)
    shared.discard(b"key", lambda kept: kept == old)  # another caller that was refused with the old token
    assert await shared.get(b"key", source.fetch) == new


async def test_shutdown_cancels_a_fetch_and_its_waiters() -> None:
    source, shared = Source(), SharedFetches[int]()
    waiting = asyncio.create_task(shared.get(b"key", source.fetch))
    await _turns()
    await shared.close()
    with pytest.raises(ExecutionError, match="shutting down"):
        await waiting


async def test_slow_token_fetch_does_not_block_others() -> None:
    """Fields with endless names, which once blocked the loop for seconds."""

    async def refuse(_request: web.Request) -> web.Response:
        return web.Response(status=401, headers=CIMultiDict([("WWW-Authenticate", "a" * 8000)] * 20))

    app = web.Application()
    app.router.add_get("/{path:.*}", refuse)
    policy = AddressPolicy(guard=AddressGuard(allows_all=True))
    async with listening(app) as port, HttpClients() as clients:
        with pytest.raises(ExecutionError, match="has no metadata about its authorization server"):
            async with asyncio.timeout(30):
                await discover_of_service(f"http://127.0.0.1:{port}/api", Sender(clients=clients, policy=policy))
