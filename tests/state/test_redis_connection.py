"""Tests for the connection to Redis."""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from gateway.state.redis_connection import RedisConnection
from gateway.state.redis_url import RedisUrl
from tests.redis_server import redis_server

STEPS: Final = 40
"""More turns of the event loop than a command needs until it waits for its reply."""


async def test_cancelled_command_ends(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(60),
        redis_server(tmp_path) as server,
        RedisConnection(RedisUrl.parse(server.url), replica="a") as store,
    ):
        went_on: list[int] = []
        for steps in range(STEPS):
            command = asyncio.create_task(store.command("BLPOP", "nothing", 1))
            for _ in range(steps):
                await asyncio.sleep(0)
            if not command.cancel():
                continue
            _done, running = await asyncio.wait([command], timeout=0.5)
            if running or not command.cancelled():
                went_on.append(steps)
            command.cancel()
        assert went_on == []


async def test_replica_stays_alive_during_slow_return_callbacks(tmp_path: Path) -> None:
    is_told, may_end = asyncio.Event(), asyncio.Event()

    async def take() -> None:
        is_told.set()
        await may_end.wait()

    async with (
        asyncio.timeout(60),
        redis_server(tmp_path) as server,
        RedisConnection(RedisUrl.parse(server.url), replica="a") as store,
    ):
        await store.open()
        store.on_return(take)
        await server.stop()
        while not store.is_unavailable:
            await asyncio.sleep(0.05)
        await server.start()
        await is_told.wait()
        await server.client.delete(store.key_of("a"))
        while not await server.client.exists(store.key_of("a")):
            await asyncio.sleep(0.05)
        may_end.set()


async def test_claim_whose_response_was_lost_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        asyncio.timeout(60),
        redis_server(tmp_path) as server,
        RedisConnection(RedisUrl.parse(server.url), replica="a") as store,
    ):
        sent = store._client.set

        async def lose_first_response(*args: object, **options: object) -> object:
            monkeypatch.setattr(store._client, "set", sent)
            await sent(*args, **options)
            raise ConnectionError

        monkeypatch.setattr(store._client, "set", lose_first_response)
        assert await store.claim("key", seconds=60)
        assert not await store.claim("key", seconds=60)
