"""Concurrent input requests suspend and resume the permit of a call in pairs."""

import asyncio
import random

import pytest

from gateway.deadline import Deadline
from gateway.limits.concurrency import ConcurrencyLimiter
from gateway.protocol.call.input_requests.requester import RunSuspension
from tests.protocol.peers import SECONDS


async def question(pause: RunSuspension, chance: random.Random) -> None:
    """Suspend for a random time, and end with a response or an error."""
    async with pause():
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        if chance.random() < 0.2:
            raise ValueError("refused")


async def requester(pause: RunSuspension, chance: random.Random) -> None:
    for _ in range(chance.randrange(1, 4)):
        try:
            await question(pause, chance)
        except ValueError:
            continue
        await asyncio.sleep(0)


async def call(slots: ConcurrencyLimiter, chance: random.Random) -> None:
    loop = asyncio.get_running_loop()
    deadline = Deadline(loop.time() + SECONDS, SECONDS)
    permit = await slots.acquire("t", (2, 99), caller="ada", deadline=deadline.at)
    pause = RunSuspension(deadline, permit)
    tasks = [asyncio.create_task(requester(pause, chance)) for _ in range(chance.randrange(1, 4))]
    try:
        await asyncio.wait(tasks, timeout=0 if chance.random() < 0.3 else None)
        if chance.random() < 0.5:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
    finally:
        permit.release()  # some calls end with open requests
    await asyncio.wait(tasks)
    assert deadline._paused_at is None


@pytest.mark.parametrize("seed", range(40))
async def test_permits_are_balanced_after_suspensions(seed: int) -> None:
    chance = random.Random(seed)
    slots = ConcurrencyLimiter()
    async with asyncio.timeout(SECONDS):
        calls = [asyncio.create_task(call(slots, chance)) for _ in range(6)]
        for each in calls:
            if chance.random() < 0.3:
                await asyncio.sleep(0)
                each.cancel()
        for ended in await asyncio.gather(*calls, return_exceptions=True):
            assert ended is None or isinstance(ended, asyncio.CancelledError)
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0)
    assert (slots.running, slots.waiting) == (0, 0)
