"""Tests for limits that replicas share."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from gateway.config.models.quantities import RateLimit, parse_rate
from gateway.errors import OverLimitError
from gateway.limits.concurrency import ConcurrencyLimiter, ConcurrencyPermit
from gateway.limits.fair_semaphore import Limit, Semaphores
from gateway.limits.rate_limiter import RateLimiter
from gateway.state.replica import Replica
from tests.redis_server import RedisServer, redis_cluster, redis_server

SECONDS: Final = 60


class Limits:
    """The limits of one replica."""

    def __init__(self, replica: Replica) -> None:
        self.replica: Final = replica
        self.rates: Final = RateLimiter(shared=replica.rates)
        self.concurrency: Final = ConcurrencyLimiter(shared=replica.semaphores)

    async def passes(self, limit: RateLimit, caller: str = "ada", *, cost: int = 1) -> bool:
        try:
            await self.rates.acquire("tools.t.rate_limit", limit, caller=caller, cost=cost)
        except OverLimitError:
            return False
        return True

    async def begin(
        self, caller: str = "ada", *, of_caller: Limit | None = None, of_all: Limit | None = None
    ) -> ConcurrencyPermit:
        return await self.concurrency.acquire(
            "t",
            (1000, 1000),
            caller=caller,
            deadline=asyncio.get_running_loop().time() + SECONDS,
            of_caller=of_caller,
            of_all=of_all,
        )


@asynccontextmanager
async def replicas(url: str, count: int = 2) -> AsyncIterator[list[Limits]]:
    async with asyncio.timeout(SECONDS), AsyncExitStack() as stack:
        found = [Limits(await stack.enter_async_context(Replica(url, clock=time.time))) for _ in range(count)]
        for each in found:
            await each.replica.open()
        yield found


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with redis_server(tmp_path / "redis") as server:
        yield server


def rate(per_caller: str | None = None, in_all: str | None = None) -> RateLimit:
    return RateLimit(
        per_caller=None if per_caller is None else parse_rate(per_caller),
        in_all=None if in_all is None else parse_rate(in_all),
    )


async def until(limits: Limits, *, is_unavailable: bool) -> None:
    while limits.replica.store.is_unavailable is not is_unavailable:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("amount", [10, 100])
async def test_rate_applies_to_all_replicas(store: RedisServer, amount: int) -> None:
    async with replicas(store.url) as (a, b):
        allowed = rate(f"{amount}/hour", in_all=f"{amount + 5}/hour")
        passed = sum(await asyncio.gather(*(each.passes(allowed) for each in (a, b) for _ in range(amount))))
        assert passed == amount
        assert sum([await each.passes(allowed, "bob") for each in (a, b) for _ in range(4)]) == 5
        alone = RateLimiter()
        for _ in range(amount):
            await alone.acquire("tools.t.rate_limit", rate(f"{amount}/hour"), caller="ada")
        with pytest.raises(OverLimitError) as refused:
            await b.rates.acquire("tools.t.rate_limit", rate(f"{amount}/hour"), caller="ada")
        with pytest.raises(OverLimitError) as alike:
            await alone.acquire("tools.t.rate_limit", rate(f"{amount}/hour"), caller="ada")
        assert str(refused.value).partition(" Try")[0] == str(alike.value).partition(" Try")[0]
        assert 0 < refused.value.retry_after <= 3600 * 21 / 20
        assert a.rates.refused + b.rates.refused == amount + 3 + 1
        assert all([await store.client.pttl(key) > 0 async for key in store.client.scan_iter("mcp-gateway:rate:*")])


async def test_shared_budget_survives_an_edit_and_refunds(store: RedisServer) -> None:
    async with replicas(store.url) as (a, b):
        assert [await each.passes(rate("2/hour")) for each in (a, b, a)] == [True, True, False]
        assert [await each.passes(rate("3/hour")) for each in (b, a)] == [True, False]
        assert not await b.passes(rate("3/day"))
        await a.rates.refund("tools.t.rate_limit", rate("3/hour"), caller="ada")
        assert [await b.passes(rate("3/hour"), cost=cost) for cost in (2, 1, 1)] == [False, True, False]
        while await a.passes(rate("5/second"), "bob"):
            pass
        while not await b.passes(rate("5/second"), "bob"):  # older calls have expired
            await asyncio.sleep(0.02)


async def test_replica_counts_its_own_calls_while_the_store_is_unavailable(store: RedisServer) -> None:
    async with replicas(store.url) as (a, b):
        assert await a.passes(rate("3/hour"))
        await store.stop()
        assert [await a.passes(rate("3/hour")) for _ in range(3)] == [True, True, False]
        assert [await b.passes(rate("3/hour")) for _ in range(4)] == [True, True, True, False]
        await store.start()
        for each in (a, b):
            await until(each, is_unavailable=False)
        assert sum([await each.passes(rate("3/hour"), "bob") for each in (a, b, a, b)]) == 3


@pytest.mark.parametrize("is_of_all", [False, True])
async def test_concurrency_is_limited_across_replicas(
    store: RedisServer,
    is_of_all: bool,  # noqa: FBT001
) -> None:
    limit: Limit = (3, 1000)
    running, most, done = 0, 0, []

    async def work(limits: Limits, number: int) -> None:
        nonlocal running, most
        permit = await (limits.begin(of_all=limit) if is_of_all else limits.begin(of_caller=limit))
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001 * (number % 3))
        running -= 1
        permit.release()
        done.append(number)

    async with replicas(store.url, 3) as found:
        await asyncio.gather(*(work(found[number % 3], number) for number in range(150)))
        assert (most, len(done)) == (3, 150)
        async with asyncio.timeout(SECONDS):
            while [key async for key in store.client.scan_iter("mcp-gateway:{limits}:*")]:
                await asyncio.sleep(0.02)


async def test_busy_replica_does_not_starve_other_replicas(store: RedisServer) -> None:
    async with replicas(store.url) as (a, b):
        limit: Limit = (1, 1000)

        async def work(limits: Limits) -> None:
            permit = await limits.begin(of_all=limit)
            await asyncio.sleep(0.001)
            permit.release()

        async def keep_busy() -> None:
            while True:
                await work(a)

        busy = [asyncio.create_task(keep_busy()) for _ in range(20)]
        while a.concurrency.waiting < 19:
            await asyncio.sleep(0)
        await work(b)
        for each in busy:
            each.cancel()
        await asyncio.gather(*busy, return_exceptions=True)


async def test_queue_applies_to_each_replica(store: RedisServer) -> None:
    async with replicas(store.url) as (a, b):
        limit: Limit = (1, 1)
        held = await a.begin(of_caller=limit)
        with pytest.raises(OverLimitError, match=r"Too many concurrent calls: 1 running, 0 waiting .*per_caller"):
            await b.begin(of_caller=(1, 0))
        waiting = [asyncio.create_task(each.begin(of_caller=limit)) for each in (a, b)]
        while not (a.concurrency.waiting and b.concurrency.waiting):
            await asyncio.sleep(0.01)
        with pytest.raises(OverLimitError, match=r"Too many concurrent calls: 1 running, 1 waiting .*per_caller"):
            await a.begin(of_caller=limit)
        held.release()
        for first in asyncio.as_completed(waiting):
            (await first).release()
        (await b.begin(of_caller=limit)).release()


async def test_waiting_calls_claim_slots_with_one_request(store: RedisServer) -> None:
    async with replicas(store.url) as (a, b):
        limit: Limit = (100, 100)
        await b.begin(of_all=limit)
        before = a.replica.store.operations
        calls = [asyncio.create_task(a.begin(of_all=limit)) for _ in range(99)]
        calls[50].cancel()
        await asyncio.wait(calls)
        assert a.replica.store.operations - before < 10
        (await b.begin(of_all=limit)).release()  # the slot of the cancelled call


async def test_call_cancelled_while_claiming_leaves_no_slot(store: RedisServer) -> None:
    async with replicas(store.url) as (a, b):
        limit: Limit = (1, 1000)
        for steps in range(20):
            call = asyncio.create_task(a.begin(of_all=limit))
            for _ in range(steps):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
            if not call.cancelled():
                call.result().release()
        (await b.begin(of_all=limit)).release()


async def test_slots_of_a_claim_cancelled_during_a_report_are_returned(store: RedisServer) -> None:
    async with replicas(store.url) as (a, _):
        slots = a.replica.semaphores.slots("calls:ada")
        await slots.take(4, has_waited=False, queue=10)
        slots.take_over_limit()  # its report makes both calls wait, so that one request claims slots for both
        first = asyncio.create_task(slots.take(4, has_waited=False, queue=10))
        second = asyncio.create_task(slots.take(4, has_waited=True, queue=10))
        await first
        slots.release()
        await asyncio.sleep(0)  # the report of the release begins
        second.cancel()
        await asyncio.wait([second])
        assert second.cancelled()
        slots.release()
        slots.release()
        while await store.client.hlen("mcp-gateway:{limits}:calls:ada"):
            await asyncio.sleep(0.01)


async def test_slot_released_during_an_outage_is_free_afterwards(store: RedisServer) -> None:
    async with replicas(store.url) as (a, b):
        limit: Limit = (1, 10)
        held = await a.begin(of_all=limit)
        await store.client.config_set("maxmemory", 1)
        for each in (a, b):
            await until(each, is_unavailable=True)
        held.release()
        await store.client.config_set("maxmemory", 0)
        for each in (a, b):
            await until(each, is_unavailable=False)
        (await b.begin(of_all=limit)).release()


async def test_limits_of_past_callers_are_dropped_during_an_outage(store: RedisServer) -> None:
    async with replicas(store.url, 1) as (a,):
        await store.stop()
        await until(a, is_unavailable=True)
        semaphores = Semaphores("calls", store=a.replica.semaphores)
        for caller in map(str, range(1100)):
            await semaphores[caller].acquire((1, 0), caller=caller, deadline=math.inf, name="limit")
            semaphores[caller].release()
        assert len(semaphores) < 1100


async def test_waiting_calls_continue_while_the_store_is_unavailable(store: RedisServer) -> None:
    async with replicas(store.url) as (a, b):
        limit: Limit = (2, 10)
        held = [await a.begin(of_all=limit), await a.begin(of_all=limit)]
        waiting = asyncio.create_task(b.begin(of_all=limit))
        await store.stop()
        held.append(await waiting)  # each replica counts separately
        held.append(await b.begin(of_all=limit))
        await store.start()
        for each in (a, b):
            await until(each, is_unavailable=False)
        while len(await store.client.hgetall("mcp-gateway:{limits}:all calls:")) < 2:
            await asyncio.sleep(0.01)
        more = asyncio.create_task(a.begin(of_all=limit))
        for permit in held[:2]:
            permit.release()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):  # the two calls of b use up the limit
                await asyncio.shield(more)
        for permit in held[2:]:
            permit.release()
        (await more).release()


async def test_suspended_call_frees_its_permit_for_another_replica(store: RedisServer) -> None:
    async with replicas(store.url) as (a, b):
        limit: Limit = (1, 10)
        first = await a.begin(of_all=limit)
        first.suspend()
        second = await b.begin(of_all=limit)
        resuming = asyncio.create_task(first.resume())
        await asyncio.sleep(0)
        second.release()
        await resuming
        first.release()


@pytest.mark.build
async def test_limits_are_shared_over_a_cluster(tmp_path: Path) -> None:
    async with redis_cluster(tmp_path) as nodes, replicas(f"redis+cluster://127.0.0.1:{nodes[0].port}") as (a, b):
        assert [await each.passes(rate("2/hour", "9/hour")) for each in (a, b, a)] == [True, True, False]
        limit: Limit = (1, 1)
        held = await a.begin(of_caller=limit, of_all=limit)
        waiting = asyncio.create_task(b.begin(of_caller=limit, of_all=limit))
        held.release()
        (await waiting).release()
