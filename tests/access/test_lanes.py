"""Places for calls: how many run, how many wait, and what happens to those that leave the queue."""

import asyncio
import math
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.access.lanes import HeldPlace, Lanes
from gateway.errors import ExecutionError


def later(seconds: float = 30) -> float:
    return asyncio.get_running_loop().time() + seconds


async def take(lanes: Lanes, queue: int = 1, deadline: float | None = None) -> HeldPlace:
    return await lanes.acquire("t", (1, queue), deadline=deadline or later())


async def test_a_call_over_the_limit_waits_its_turn() -> None:
    lanes = Lanes()
    first = await take(lanes)
    second = asyncio.create_task(take(lanes))
    await asyncio.sleep(0)
    assert (lanes.running, lanes.waiting) == (1, 1)
    first.release()
    (await second).release()
    assert (lanes.running, lanes.waiting) == (0, 0)


async def test_a_call_over_the_queue_is_refused_at_once() -> None:
    lanes = Lanes()
    held = await take(lanes)
    with pytest.raises(ExecutionError, match="Busy: 1 calls are running and 0 are waiting"):
        await take(lanes, queue=0)
    held.release()


async def test_waiting_ends_with_the_deadline_and_leaves_the_queue() -> None:
    lanes = Lanes()
    held = await take(lanes)
    with pytest.raises(ExecutionError, match="while waiting"):
        await take(lanes, deadline=later(0.01))
    assert lanes.waiting == 0
    held.release()
    (await take(lanes)).release()


async def test_a_place_is_taken_until_the_clean_up_after_the_call_is_done() -> None:
    lanes = Lanes()
    held = await take(lanes)
    cleaned = asyncio.Event()

    async def clean_up() -> None:
        await cleaned.wait()

    task = asyncio.create_task(clean_up())
    held.hold_until(task)
    held.release()
    assert lanes.running == 1
    cleaned.set()
    await task
    await asyncio.sleep(0)
    assert lanes.running == 0


async def test_no_place_is_lost_when_waiters_are_cancelled_in_the_moment_that_it_is_theirs() -> None:
    lanes = Lanes()
    held = await take(lanes)
    waiting = [asyncio.create_task(take(lanes, queue=10)) for _ in range(4)]
    await asyncio.sleep(0)
    held.release()  # the first waiter's place is set, and it has not run yet
    for task in waiting[:3]:
        task.cancel()
    await asyncio.gather(*waiting[:3], return_exceptions=True)
    last = await asyncio.wait_for(waiting[3], 20)
    last.release()
    assert (lanes.running, lanes.waiting) == (0, 0)


async def test_a_lent_place_is_used_by_others_and_comes_back_first() -> None:
    lanes = Lanes()
    first = await take(lanes)
    first.lend()
    second = await take(lanes)
    third = asyncio.create_task(take(lanes))
    back = asyncio.create_task(first.take_back())
    await asyncio.sleep(0)
    assert (lanes.running, lanes.waiting) == (1, 2)
    second.release()
    await back
    assert not third.done()
    first.release()
    (await third).release()
    assert (lanes.running, lanes.waiting) == (0, 0)


async def test_a_call_that_is_about_to_end_does_not_wait_for_its_place() -> None:
    lanes = Lanes()
    first = await take(lanes)
    first.lend()
    second = await take(lanes)
    back = asyncio.create_task(first.take_back())
    await asyncio.sleep(0)
    back.cancel()
    await asyncio.wait([back])
    assert (lanes.running, lanes.waiting) == (2, 0)
    first.release()
    second.release()
    assert (lanes.running, lanes.waiting) == (0, 0)


class LendingMachine(RuleBasedStateMachine):
    """Calls that lend, take back, seize and end in any order, more often and later than they should."""

    @initialize()
    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.lanes = Lanes()
        self.held: list[HeldPlace] = []
        self.open_calls: list[HeldPlace] = []
        self.waiting: list[asyncio.Task[Any]] = []

    @rule()
    def begin(self) -> None:
        async def take_one() -> None:
            slot = await self.lanes.acquire("t", (2, 9), deadline=math.inf)
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
        assert 0 <= self.lanes.running <= len(self.open_calls) + len(self.waiting)

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
        assert (self.lanes.running, self.lanes.waiting) == (0, 0)
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
TestLending.settings = settings(stateful_step_count=30)
