"""Deadlines, which pause during input requests."""

import asyncio

import pytest

from gateway.deadline import Deadline, DeadlineExceededError

SOON = 0.05


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_nearer_of_two_limits_applies_and_is_named() -> None:
    for left, seconds, named in ((SOON, 30, "60.0"), (30, SOON, "0.1"), (SOON, None, "60.0")):
        began = now()
        with pytest.raises(DeadlineExceededError, match=f"^it timed out after {named} s$"):
            async with Deadline(now() + left, 60).limit("it", seconds):
                await asyncio.sleep(30)
        assert now() - began < 10


async def test_timeout_of_the_body_itself_is_not_the_deadline() -> None:
    with pytest.raises(TimeoutError, match="no response"):
        async with Deadline(now() + 60, 60).limit("it"):
            raise TimeoutError("no response")


async def test_paused_time_does_not_count() -> None:
    deadline = Deadline(now() + SOON, SOON)
    due = deadline.at
    async with deadline.limit("it", 2 * SOON):
        deadline.pause()
        await asyncio.sleep(3 * SOON)
        deadline.pause()  # already paused
        await asyncio.sleep(SOON)
        deadline.resume()
        deadline.resume()
    assert deadline.at >= due + 4 * SOON - 0.001


async def test_resumed_deadline_continues() -> None:
    deadline = Deadline(now() + SOON, SOON)
    deadline.pause()
    await asyncio.sleep(2 * SOON)
    deadline.resume()
    with pytest.raises(DeadlineExceededError):
        async with deadline.limit("it"):
            await asyncio.sleep(30)


async def test_limit_that_starts_while_paused_starts_on_resume() -> None:
    deadline = Deadline(now() + 30, 30)
    deadline.pause()
    await asyncio.sleep(SOON)
    went_on = 0.0

    async def limited() -> None:
        nonlocal went_on
        async with deadline.limit("it", 2 * SOON):
            await asyncio.sleep(4 * SOON)  # no deadline
            deadline.resume()
            went_on = now()
            await asyncio.sleep(30)

    with pytest.raises(DeadlineExceededError):
        await limited()
    assert now() - went_on >= 2 * SOON - 0.01


async def test_pause_at_the_moment_of_expiry_changes_nothing() -> None:
    deadline = Deadline(now() + 30, 30)

    async def limited() -> None:
        async with deadline.limit("it", 0):
            try:
                await asyncio.sleep(30)
            finally:
                deadline.pause()
                deadline.resume()

    with pytest.raises(DeadlineExceededError):
        await limited()


async def test_work_that_is_also_cancelled_elsewhere_stays_cancelled() -> None:
    async def limited() -> None:
        async with Deadline(now() + 30, 30).limit("it", 0):
            working.cancel()
            try:
                await asyncio.sleep(30)
            finally:
                await asyncio.wait([asyncio.create_task(asyncio.sleep(SOON))])  # and its deadline passes

    working = asyncio.create_task(limited())
    await asyncio.wait([working], timeout=30)
    assert working.cancelled()
