"""A call that asks several things at once, in any order and with any end, has one place or none; and its clock runs."""

import asyncio
import random

import pytest

from gateway.access.slots import Slots
from gateway.executors.clock import Clock
from gateway.protocol.running import _Pause
from tests.protocol.peers import SECONDS


async def question(pause: _Pause, chance: random.Random) -> None:
    """One that is answered, or refused, after others had their turn."""
    async with pause():
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        if chance.random() < 0.2:
            raise ValueError("refused")


async def asker(pause: _Pause, chance: random.Random) -> None:
    for _ in range(chance.randrange(1, 4)):
        try:
            await question(pause, chance)
        except ValueError:
            continue
        await asyncio.sleep(0)


async def call(slots: Slots, chance: random.Random) -> None:
    loop = asyncio.get_running_loop()
    clock = Clock(loop.time() + SECONDS)
    slot = await slots.acquire("t", (2, 99), caller="ada", deadline=clock.deadline)
    pause = _Pause(clock, slot)
    tasks = [asyncio.create_task(asker(pause, chance)) for _ in range(chance.randrange(1, 4))]
    try:
        await asyncio.wait(tasks, timeout=0 if chance.random() < 0.3 else None)
        if chance.random() < 0.5:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
    finally:
        slot.release()  # some calls leave questions behind
    await asyncio.wait(tasks)
    assert clock._stopped_at is None


@pytest.mark.parametrize("seed", range(40))
async def test_no_place_is_lost_or_gained(seed: int) -> None:
    chance = random.Random(seed)
    slots = Slots()
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
