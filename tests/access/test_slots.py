"""Places for calls: how many run, how many wait, and what happens to those that leave the queue."""

import asyncio

import pytest

from gateway.access.slots import HeldSlot, Slots
from gateway.errors import ExecutionError


def later(seconds: float = 30) -> float:
    return asyncio.get_running_loop().time() + seconds


async def take(slots: Slots, queue: int = 1, deadline: float | None = None) -> HeldSlot:
    return await slots.acquire("t", concurrency=1, queue=queue, deadline=deadline or later())


async def test_a_call_over_the_limit_waits_its_turn() -> None:
    slots = Slots()
    first = await take(slots)
    second = asyncio.create_task(take(slots))
    await asyncio.sleep(0)
    assert (slots.running, slots.waiting) == (1, 1)
    first.release()
    (await second).release()
    assert (slots.running, slots.waiting) == (0, 0)


async def test_a_call_over_the_queue_is_refused_at_once() -> None:
    slots = Slots()
    held = await take(slots)
    with pytest.raises(ExecutionError, match="Busy: 1 calls are running and 0 are waiting"):
        await take(slots, queue=0)
    held.release()


async def test_waiting_ends_with_the_deadline_and_leaves_the_queue() -> None:
    slots = Slots()
    held = await take(slots)
    with pytest.raises(ExecutionError, match="while waiting"):
        await take(slots, deadline=later(0.01))
    assert slots.waiting == 0
    held.release()
    (await take(slots)).release()


async def test_a_place_is_taken_until_the_clean_up_after_the_call_is_done() -> None:
    slots = Slots()
    held = await take(slots)
    cleaned = asyncio.Event()

    async def clean_up() -> None:
        await cleaned.wait()

    task = asyncio.create_task(clean_up())
    held.hold_until(task)
    held.release()
    assert slots.running == 1
    cleaned.set()
    await task
    await asyncio.sleep(0)
    assert slots.running == 0


async def test_no_place_is_lost_when_waiters_are_cancelled_in_the_moment_that_it_is_theirs() -> None:
    slots = Slots()
    held = await take(slots)
    waiting = [asyncio.create_task(take(slots, queue=10)) for _ in range(4)]
    await asyncio.sleep(0)
    held.release()  # the first waiter's place is set, and it has not run yet
    for task in waiting[:3]:
        task.cancel()
    await asyncio.gather(*waiting[:3], return_exceptions=True)
    last = await asyncio.wait_for(waiting[3], 5)
    last.release()
    assert (slots.running, slots.waiting) == (0, 0)
