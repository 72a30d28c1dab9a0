"""A call's clock, which stands still while a question is open."""

import asyncio

import pytest

from gateway.executors.clock import Clock

SOON = 0.05


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_the_nearer_of_two_limits_counts() -> None:
    for deadline, seconds in ((now() + SOON, 30), (now() + 30, SOON), (now() + SOON, None)):
        began = now()
        with pytest.raises(TimeoutError):
            async with Clock(deadline).limit(seconds):
                await asyncio.sleep(30)
        assert now() - began < 10


async def test_time_that_it_stood_still_does_not_count() -> None:
    clock = Clock(now() + SOON)
    deadline = clock.deadline
    async with clock.limit(2 * SOON):
        clock.stop()
        await asyncio.sleep(3 * SOON)
        clock.stop()  # it stands still already
        await asyncio.sleep(SOON)
        clock.go_on()
        clock.go_on()
    assert clock.deadline >= deadline + 4 * SOON - 0.001


async def test_it_goes_on_from_where_it_stood() -> None:
    clock = Clock(now() + SOON)
    clock.stop()
    await asyncio.sleep(2 * SOON)
    clock.go_on()
    with pytest.raises(TimeoutError):
        async with clock.limit():
            await asyncio.sleep(30)


async def test_a_limit_that_begins_while_it_stands_still_begins_when_it_goes_on() -> None:
    clock = Clock(now() + 30)
    clock.stop()
    await asyncio.sleep(SOON)
    went_on = 0.0

    async def limited() -> None:
        nonlocal went_on
        async with clock.limit(2 * SOON):
            await asyncio.sleep(4 * SOON)  # nothing ends it
            clock.go_on()
            went_on = now()
            await asyncio.sleep(30)

    with pytest.raises(TimeoutError):
        await limited()
    assert now() - went_on >= 2 * SOON - 0.01


async def test_stopping_in_the_moment_that_a_limit_ran_out_changes_nothing() -> None:
    clock = Clock(now() + 30)

    async def limited() -> None:
        async with clock.limit(0):
            try:
                await asyncio.sleep(30)
            finally:
                clock.stop()
                clock.go_on()

    with pytest.raises(TimeoutError):
        await limited()
