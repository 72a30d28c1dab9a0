"""Tests for concurrency limits."""

import asyncio
import math
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.errors import ExecutionError, OverLimitError
from gateway.limits import fair_semaphore
from gateway.limits.concurrency import ConcurrencyLimiter, ConcurrencyPermit
from gateway.limits.fair_semaphore import FairSemaphore, Limit

MANY = (99, 99)


def later(seconds: float = 30) -> float:
    return asyncio.get_running_loop().time() + seconds


async def take(
    limiter: ConcurrencyLimiter,
    caller: str = "ada",
    primitive: str = "t",
    *,
    limit: Limit = MANY,
    of_caller: Limit | None = None,
    of_all: Limit | None = None,
    deadline: float | None = None,
) -> ConcurrencyPermit:
    deadline = later() if deadline is None else deadline
    return await limiter.acquire(primitive, limit, caller=caller, deadline=deadline, of_caller=of_caller, of_all=of_all)


async def take_only_permits(limiter: ConcurrencyLimiter) -> ConcurrencyPermit:
    """Take the only permit of each limit."""
    return await take(limiter, limit=(1, 9), of_caller=(1, 9), of_all=(1, 9))


def is_idle(limiter: ConcurrencyLimiter) -> bool:
    return (limiter.running, limiter.waiting) == (0, 0)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_call_over_the_limit_waits() -> None:
    limiter = ConcurrencyLimiter()
    first = await take(limiter, limit=(1, 1))
    second = asyncio.create_task(take(limiter, limit=(1, 1)))
    await settle()
    assert (limiter.running, limiter.waiting) == (1, 1)
    first.release()
    (await second).release()
    assert is_idle(limiter)


async def test_try_acquire_only_takes_a_free_permit() -> None:
    limiter = ConcurrencyLimiter()
    first = limiter.try_acquire("t", (1, 9))
    assert first is not None
    assert limiter.try_acquire("t", (1, 9)) is None
    second = asyncio.create_task(take(limiter, limit=(1, 9)))
    await settle()
    first.release()
    assert limiter.try_acquire("t", (1, 9)) is None  # the permit belongs to the second call
    assert limiter.try_acquire("t", (2, 9)) is not None  # the limit was changed
    (await second).release()


@pytest.mark.parametrize("queue", [0, 9])
async def test_raised_limit_wakes_waiting_calls(queue: int) -> None:
    limiter = ConcurrencyLimiter()
    await take(limiter, limit=(1, 9))
    waiting = [asyncio.create_task(take(limiter, limit=(1, 9))) for _ in range(2)]
    await settle()
    waiting.append(asyncio.create_task(take(limiter, limit=(4, queue))))
    await settle()
    assert [task.done() and not task.exception() for task in waiting] == [True, True, True]
    assert limiter.try_acquire("t", (4, queue)) is None


async def test_waiting_ends_with_the_deadline_and_leaves_the_queue() -> None:
    limiter = ConcurrencyLimiter()
    held = await take(limiter, limit=(1, 1))
    with pytest.raises(ExecutionError, match="timed out in the queue"):
        await take(limiter, limit=(1, 1), deadline=later(0.01))
    assert limiter.waiting == 0
    held.release()
    (await take(limiter, limit=(1, 1))).release()


async def test_permit_is_held_until_cleanup_is_done() -> None:
    limiter, cleaned = ConcurrencyLimiter(), asyncio.Event()
    held = await take(limiter)

    async def clean_up() -> None:
        await cleaned.wait()

    task = asyncio.create_task(clean_up())
    held.hold_until_done(task)
    held.release()
    assert limiter.running == 1
    cleaned.set()
    await task
    await settle()
    assert is_idle(limiter)


async def test_cancellation_at_the_moment_of_a_grant_loses_no_permit() -> None:
    limiter = ConcurrencyLimiter()
    held = await take(limiter, limit=(1, 9))
    waiting = [asyncio.create_task(take(limiter, limit=(1, 9))) for _ in range(4)]
    await settle()
    held.release()  # the first waiter is granted, but has not run yet
    for task in waiting[:3]:
        task.cancel()
    await asyncio.gather(*waiting[:3], return_exceptions=True)
    (await asyncio.wait_for(waiting[3], 20)).release()
    assert is_idle(limiter)


async def test_suspended_call_resumes_before_waiting_calls() -> None:
    limiter = ConcurrencyLimiter()
    first = await take(limiter, limit=(1, 9))
    first.suspend()
    second = await take(limiter, limit=(1, 9))
    third = asyncio.create_task(take(limiter, limit=(1, 9)))
    back = asyncio.create_task(first.resume())
    await settle()
    assert (limiter.running, limiter.waiting) == (1, 2)
    second.release()
    await back
    assert not third.done()
    first.release()
    (await third).release()
    assert is_idle(limiter)


async def test_unused_semaphores_are_dropped_except_with_suspended_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fair_semaphore, "_MAX_UNUSED", 10)
    limiter = ConcurrencyLimiter()
    suspended = await take(limiter, "ada", of_caller=(1, 9))
    suspended.suspend()
    for number in range(100):
        (await take(limiter, f"caller {number}", of_caller=(1, 9))).release()
    assert len(limiter._callers) <= 10
    await suspended.resume()
    second = asyncio.create_task(take(limiter, "ada", of_caller=(1, 9)))
    await settle()
    assert not second.done()
    suspended.release()
    (await second).release()
    assert is_idle(limiter)


async def test_caller_limit_does_not_affect_other_callers() -> None:
    limiter = ConcurrencyLimiter()
    first = await take(limiter, of_caller=(1, 1))
    second = asyncio.create_task(take(limiter, primitive="other", of_caller=(1, 1)))
    await settle()
    assert not second.done()
    (await take(limiter, "bob", of_caller=(1, 1))).release()
    first.release()
    (await second).release()
    assert is_idle(limiter)


async def test_total_limit_applies_to_all_callers() -> None:
    limiter = ConcurrencyLimiter()
    first = await take(limiter, of_all=(1, 9))
    second = asyncio.create_task(take(limiter, "bob", of_all=(1, 9)))
    await settle()
    assert not second.done()
    assert (limiter.running, limiter.waiting) == (1, 1)
    first.release()
    (await second).release()
    assert is_idle(limiter)


@pytest.mark.parametrize(
    ("of_caller", "of_all", "limit"),
    [((1, 0), None, "limits.concurrency, per_caller"), (None, (1, 0), "limits.concurrency, in_all")],
)
async def test_full_queue_error_names_the_limit(
    of_caller: tuple[int, int] | None, of_all: tuple[int, int] | None, limit: str
) -> None:
    limiter = ConcurrencyLimiter()
    held = await take(limiter, of_caller=of_caller, of_all=of_all)
    with pytest.raises(OverLimitError) as caught:
        await take(limiter, of_caller=of_caller, of_all=of_all)
    assert str(caught.value) == f"Too many concurrent calls: 1 running, 0 waiting ({limit}). Try again in 1 s."
    held.release()
    (await take(limiter, of_caller=of_caller, of_all=of_all)).release()
    assert (limiter.running, limiter.waiting, limiter.refused) == (0, 0, 1)


async def test_acquired_permits_are_released_when_a_later_one_times_out() -> None:
    limiter = ConcurrencyLimiter()
    held = await take(limiter, of_all=(1, 9))
    with pytest.raises(ExecutionError, match="in_all"):
        await take(limiter, "bob", of_caller=(1, 0), of_all=(1, 9), deadline=later(0.01))
    held.release()
    (await take(limiter, "bob", of_caller=(1, 0), of_all=(1, 9))).release()
    assert is_idle(limiter)


async def test_all_permits_of_a_call_are_suspended_and_resumed_together() -> None:
    limiter = ConcurrencyLimiter()
    first = await take_only_permits(limiter)
    first.suspend()
    second = await take_only_permits(limiter)
    back = asyncio.create_task(first.resume())
    await settle()
    assert not back.done()
    second.release()
    await back
    third = asyncio.create_task(take_only_permits(limiter))
    await settle()
    assert not third.done()
    first.release()
    (await third).release()
    assert is_idle(limiter)


async def test_call_cancelled_while_resuming_counts_until_it_ends() -> None:
    limiter = ConcurrencyLimiter()
    first = await take_only_permits(limiter)
    first.suspend()
    second = await take_only_permits(limiter)
    back = asyncio.create_task(first.resume())
    await settle()
    back.cancel()
    await asyncio.wait([back])
    second.release()
    waiting = asyncio.create_task(take_only_permits(limiter))
    await settle()
    assert not waiting.done()
    first.release()
    (await waiting).release()
    assert is_idle(limiter)


async def test_callers_are_served_in_rotation() -> None:
    limiter, order = ConcurrencyLimiter(), []

    async def call(caller: str) -> None:
        permit = await take(limiter, caller, limit=(1, 64))
        order.append(caller)
        permit.release()

    held = await take(limiter, "first", limit=(1, 64))
    calls = [asyncio.create_task(call(caller)) for caller in ["loud"] * 30 + ["quiet"] * 3]
    await settle()
    held.release()
    await asyncio.wait(calls)
    assert order[:6] == ["loud", "quiet"] * 3


async def test_caller_that_fills_the_queue_yields_to_others() -> None:
    limiter = ConcurrencyLimiter()
    held = await take(limiter, "loud", limit=(1, 4))
    loud = [asyncio.create_task(take(limiter, "loud", limit=(1, 4))) for _ in range(4)]
    await settle()
    quiet = [asyncio.create_task(take(limiter, "quiet", limit=(1, 4))) for _ in range(3)]
    await settle()
    outcomes = Counter("refused" if task.done() and task.exception() else "waits" for task in [*loud, *quiet])
    assert outcomes == {"waits": 4, "refused": 3}
    assert [task.done() for task in loud] == [False, False, True, True]  # the last ones
    assert [task.done() for task in quiet] == [False, False, True]
    held.release()
    for task in (loud[0], quiet[0], loud[1], quiet[1]):
        (await asyncio.wait_for(task, 20)).release()
    assert (limiter.running, limiter.waiting, limiter.refused) == (0, 0, 3)


async def test_caller_who_left_the_queue_is_skipped() -> None:
    limiter = ConcurrencyLimiter()
    held = await take(limiter, "a", limit=(1, 9))
    gone = asyncio.create_task(take(limiter, "b", limit=(1, 9)))
    stays = asyncio.create_task(take(limiter, "c", limit=(1, 9)))
    await settle()
    gone.cancel()
    await asyncio.wait([gone])
    held.release()
    (await asyncio.wait_for(stays, 20)).release()
    assert is_idle(limiter)


class SuspensionMachine(RuleBasedStateMachine):
    """A state machine of calls that suspend, resume and end in any order."""

    @initialize()
    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.limiter = ConcurrencyLimiter()
        self.held: list[ConcurrencyPermit] = []
        self.open_calls: list[ConcurrencyPermit] = []
        self.waiting: list[asyncio.Task[Any]] = []

    @rule()
    def begin(self) -> None:
        async def take_one() -> None:
            permit = await self.limiter.acquire(
                "t", (2, 9), caller="ada", deadline=math.inf, of_caller=(2, 9), of_all=(1, 9)
            )
            self.held.append(permit)
            self.open_calls.append(permit)

        self._start(take_one())

    @rule(data=st.data(), what=st.sampled_from(["suspend", "force_resume"]))
    def act(self, data: st.DataObject, what: str) -> None:
        if self.held:
            getattr(data.draw(st.sampled_from(self.held)), what)()
            self._settle()

    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        if self.held:
            self._start(data.draw(st.sampled_from(self.held)).resume())

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.waiting:
            data.draw(st.sampled_from(self.waiting)).cancel()
            self._settle()

    @rule(data=st.data(), lingers=st.booleans())
    def end(self, data: st.DataObject, lingers: bool) -> None:  # noqa: FBT001 - drawn by name
        if self.open_calls:
            permit = data.draw(st.sampled_from(self.open_calls))
            self.open_calls.remove(permit)
            if lingers:
                permit.hold_until_done(self._start(asyncio.sleep(0)))
            permit.release()
            self._settle()

    @invariant()
    def counts_equal_the_running_calls(self) -> None:
        for each in self._semaphores():
            assert 0 <= each.running <= len(self.open_calls) + len(self.waiting)

    def teardown(self) -> None:
        for task in self.waiting:
            task.cancel()
        self._settle()
        for permit in self.open_calls:
            permit.release()
        self._settle()
        for permit in self.held:
            permit.suspend()
            permit.force_resume()
            self._start(permit.resume())
        assert is_idle(self.limiter)
        assert [(each.running, each.suspended) for each in self._semaphores()] == [(0, 0)] * len(self._semaphores())
        self.loop.close()

    def _semaphores(self) -> list[FairSemaphore]:
        limiter = self.limiter
        return [*limiter._callers.values(), *limiter._primitives.values(), *limiter._all.values()]

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self.loop.create_task(work)
        self.waiting.append(task)
        self._settle()
        return task

    def _settle(self) -> None:
        for _ in range(10):
            self.loop.run_until_complete(asyncio.sleep(0))
        self.waiting = [task for task in self.waiting if not task.done()]


TestSuspension = SuspensionMachine.TestCase
TestSuspension.settings = settings(stateful_step_count=30)
