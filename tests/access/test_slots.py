"""A call's places: of its caller, of the primitive, of all; and that nobody starves."""

import asyncio
from collections import Counter

import pytest

from gateway.access.slots import HeldSlot, Slots
from gateway.errors import ExecutionError, OverLimitError

MANY = (99, 99)


def later(seconds: float = 30) -> float:
    return asyncio.get_running_loop().time() + seconds


async def take(
    slots: Slots,
    caller: str = "ada",
    primitive: str = "t",
    *,
    ceiling: tuple[int, int] = MANY,
    of_caller: tuple[int, int] | None = None,
    of_all: tuple[int, int] | None = None,
    deadline: float | None = None,
) -> HeldSlot:
    deadline = later() if deadline is None else deadline
    return await slots.acquire(primitive, ceiling, caller=caller, deadline=deadline, of_caller=of_caller, of_all=of_all)


async def take_every(slots: Slots) -> HeldSlot:
    """One of each kind, of which there is one."""
    return await take(slots, ceiling=(1, 9), of_caller=(1, 9), of_all=(1, 9))


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_callers_calls_wait_for_each_other_and_for_nobody_else() -> None:
    slots = Slots()
    first = await take(slots, of_caller=(1, 1))
    second = asyncio.create_task(take(slots, primitive="other", of_caller=(1, 1)))
    await settle()
    assert not second.done()
    (await take(slots, "bob", of_caller=(1, 1))).release()
    first.release()
    (await second).release()
    assert (slots.running, slots.waiting) == (0, 0)


async def test_calls_of_all_callers_share_the_places_of_all() -> None:
    slots = Slots()
    first = await take(slots, of_all=(1, 9))
    second = asyncio.create_task(take(slots, "bob", of_all=(1, 9)))
    await settle()
    assert not second.done()
    assert (slots.running, slots.waiting) == (1, 1)
    first.release()
    (await second).release()
    assert (slots.running, slots.waiting) == (0, 0)


@pytest.mark.parametrize(
    ("of_caller", "of_all", "limit"),
    [((1, 0), None, "limits.concurrency, per_caller"), (None, (1, 0), "limits.concurrency, in_all")],
)
async def test_a_full_queue_refuses_and_names_the_limit(
    of_caller: tuple[int, int] | None, of_all: tuple[int, int] | None, limit: str
) -> None:
    slots = Slots()
    held = await take(slots, of_caller=of_caller, of_all=of_all)
    with pytest.raises(OverLimitError) as caught:
        await take(slots, of_caller=of_caller, of_all=of_all)
    assert str(caught.value) == f"Busy: 1 calls are running and 0 are waiting ({limit}). Try again in 1 s."
    held.release()
    (await take(slots, of_caller=of_caller, of_all=of_all)).release()
    assert (slots.running, slots.waiting, slots.refused) == (0, 0, 1)


async def test_what_was_taken_is_given_back_when_the_next_place_is_not_had_in_time() -> None:
    slots = Slots()
    held = await take(slots, of_all=(1, 9))
    with pytest.raises(ExecutionError, match="in_all"):
        await take(slots, "bob", of_caller=(1, 0), of_all=(1, 9), deadline=later(0.01))
    held.release()
    (await take(slots, "bob", of_caller=(1, 0), of_all=(1, 9))).release()
    assert (slots.running, slots.waiting) == (0, 0)


async def test_all_places_are_lent_and_taken_back_together() -> None:
    slots = Slots()
    first = await take_every(slots)
    first.lend()
    second = await take_every(slots)
    back = asyncio.create_task(first.take_back())
    await settle()
    assert not back.done()
    second.release()
    await back
    third = asyncio.create_task(take_every(slots))
    await settle()
    assert not third.done()
    first.release()
    (await third).release()
    assert (slots.running, slots.waiting) == (0, 0)


async def test_a_cancelled_return_has_every_place_until_the_call_ends() -> None:
    slots = Slots()
    first = await take_every(slots)
    first.lend()
    second = await take_every(slots)
    back = asyncio.create_task(first.take_back())
    await settle()
    back.cancel()
    await asyncio.wait([back])
    second.release()
    waiting = asyncio.create_task(take_every(slots))
    await settle()
    assert not waiting.done()
    first.release()
    (await waiting).release()
    assert (slots.running, slots.waiting) == (0, 0)


async def test_callers_have_their_turns_in_rotation() -> None:
    slots, order = Slots(), []

    async def call(caller: str) -> None:
        slot = await take(slots, caller, ceiling=(1, 64))
        order.append(caller)
        slot.release()

    held = await take(slots, "first", ceiling=(1, 64))
    calls = [asyncio.create_task(call(caller)) for caller in ["loud"] * 30 + ["quiet"] * 3]
    await settle()
    held.release()
    await asyncio.wait(calls)
    assert order[:6] == ["loud", "quiet"] * 3


async def test_who_fills_the_queue_gives_way_to_those_who_have_less_in_it() -> None:
    slots = Slots()
    held = await take(slots, "loud", ceiling=(1, 4))
    loud = [asyncio.create_task(take(slots, "loud", ceiling=(1, 4))) for _ in range(4)]
    await settle()
    quiet = [asyncio.create_task(take(slots, "quiet", ceiling=(1, 4))) for _ in range(3)]
    await settle()
    outcomes = Counter("refused" if task.done() and task.exception() else "waits" for task in [*loud, *quiet])
    assert outcomes == {"waits": 4, "refused": 3}
    assert [task.done() for task in loud] == [False, False, True, True]  # those that came last
    assert [task.done() for task in quiet] == [False, False, True]
    held.release()
    for task in (loud[0], quiet[0], loud[1], quiet[1]):
        (await asyncio.wait_for(task, 20)).release()
    assert (slots.running, slots.waiting, slots.refused) == (0, 0, 3)


async def test_a_caller_who_left_the_queue_has_no_turn() -> None:
    slots = Slots()
    held = await take(slots, "a", ceiling=(1, 9))
    gone = asyncio.create_task(take(slots, "b", ceiling=(1, 9)))
    stays = asyncio.create_task(take(slots, "c", ceiling=(1, 9)))
    await settle()
    gone.cancel()
    await asyncio.wait([gone])
    held.release()
    (await asyncio.wait_for(stays, 20)).release()
    assert (slots.running, slots.waiting) == (0, 0)
