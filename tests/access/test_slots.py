"""Places for calls: how many run, how many wait, and what happens to those that leave the queue."""

import asyncio
import math
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

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


async def test_a_lent_place_is_used_by_others_and_comes_back_first() -> None:
    slots = Slots()
    first = await take(slots)
    first.lend()
    second = await take(slots)
    third = asyncio.create_task(take(slots))
    back = asyncio.create_task(first.take_back())
    await asyncio.sleep(0)
    assert (slots.running, slots.waiting) == (1, 2)
    second.release()
    await back
    assert not third.done()
    first.release()
    (await third).release()
    assert (slots.running, slots.waiting) == (0, 0)


async def test_a_call_that_is_about_to_end_does_not_wait_for_its_place() -> None:
    slots = Slots()
    first = await take(slots)
    first.lend()
    second = await take(slots)
    back = asyncio.create_task(first.take_back())
    await asyncio.sleep(0)
    back.cancel()
    await asyncio.wait([back])
    assert (slots.running, slots.waiting) == (2, 0)
    first.release()
    second.release()
    assert (slots.running, slots.waiting) == (0, 0)


class LendingMachine(RuleBasedStateMachine):
    """Calls that lend, take back, seize and end in any order, more often and later than they should."""

    @initialize()
    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.slots = Slots()
        self.held: list[HeldSlot] = []
        self.open_calls: list[HeldSlot] = []
        self.waiting: list[asyncio.Task[Any]] = []

    @rule()
    def begin(self) -> None:
        async def take_one() -> None:
            slot = await self.slots.acquire("t", concurrency=2, queue=9, deadline=math.inf)
            self.held.append(slot)
            self.open_calls.append(slot)

        self._start(take_one())

    @rule(data=st.data(), what=st.sampled_from(["lend", "seize"]))
    def act(self, data: st.DataObject, what: str) -> None:
        if self.held:
            getattr(data.draw(st.sampled_from(self.held)), what)()
            self._settle()

    @rule(data=st.data())
    def take_back(self, data: st.DataObject) -> None:
        if self.held:
            self._start(data.draw(st.sampled_from(self.held)).take_back())

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.waiting:
            data.draw(st.sampled_from(self.waiting)).cancel()
            self._settle()

    @rule(data=st.data(), lingers=st.booleans())
    def end(self, data: st.DataObject, lingers: bool) -> None:  # noqa: FBT001 - drawn by name
        if self.open_calls:
            slot = data.draw(st.sampled_from(self.open_calls))
            self.open_calls.remove(slot)
            if lingers:
                slot.hold_until(self._start(asyncio.sleep(0)))
            slot.release()
            self._settle()

    @invariant()
    def nobody_is_counted_who_is_not_there(self) -> None:
        assert 0 <= self.slots.running <= len(self.open_calls) + len(self.waiting)

    def teardown(self) -> None:
        for task in self.waiting:
            task.cancel()
        self._settle()
        for slot in self.open_calls:
            slot.release()
        self._settle()
        for slot in self.held:
            slot.lend()
            slot.seize()
            self._start(slot.take_back())
        assert (self.slots.running, self.slots.waiting) == (0, 0)
        self.loop.close()

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self.loop.create_task(work)
        self.waiting.append(task)
        self._settle()
        return task

    def _settle(self) -> None:
        for _ in range(10):
            self.loop.run_until_complete(asyncio.sleep(0))
        self.waiting = [task for task in self.waiting if not task.done()]


TestLending = LendingMachine.TestCase
TestLending.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
