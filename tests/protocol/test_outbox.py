"""The outbox of a session: bounded, and read by the newest stream."""

import asyncio

from msgspec.structs import replace

from gateway.protocol.notifier import Subscription
from gateway.protocol.outbox import MAX_MESSAGES, NotificationCounters, Outbox
from tests.tasks.test_stores import make_task


async def test_messages_are_queued_for_the_first_reader() -> None:
    outbox = Outbox()
    outbox.put("one", {"n": 1})
    with outbox.reader() as reader:
        assert await reader.get() == {"n": 1}


async def test_newest_reader_gets_each_message_once() -> None:
    outbox = Outbox()
    with outbox.reader() as old:
        waiting = asyncio.create_task(old.get())
        await asyncio.sleep(0)
        with outbox.reader() as new:
            outbox.put("one", {"n": 1})
            assert await new.get() == {"n": 1}
            outbox.put("two", {"n": 2})
            await asyncio.sleep(0)
            assert not waiting.done()
        assert await asyncio.wait_for(waiting, 20) == {"n": 2}


async def test_full_outbox_returns_false() -> None:
    outbox = Outbox()
    assert all(outbox.put(str(n), {}) for n in range(MAX_MESSAGES))
    assert not outbox.put("one more", {})
    assert outbox.put("0", {})  # a message with this key is queued


async def test_queued_announcement_covers_later_ones() -> None:
    outbox = Outbox()
    outbox.put("tools", {"n": 1})
    outbox.put("tools", {"n": 2})
    with outbox.reader() as reader:
        assert await reader.get() == {"n": 1}
        outbox.close()
        assert await reader.get() is None


async def test_readers_end_when_the_outbox_closes() -> None:
    outbox = Outbox()
    with outbox.reader() as old, outbox.reader() as new:
        reading = [asyncio.create_task(old.get()), asyncio.create_task(new.get())]
        await asyncio.sleep(0)
        outbox.close()
        assert await asyncio.wait_for(asyncio.gather(*reading), 20) == [None, None]


async def test_sent_and_dropped_messages_are_counted_by_method() -> None:
    outbox = Outbox()
    counters = NotificationCounters()
    outbox.count_with(counters)
    for number in range(MAX_MESSAGES + 2):
        outbox.put(str(number), {"method": "notifications/resources/updated"})
    assert (counters.sent, counters.dropped) == ({}, {"notifications/resources/updated": 2})
    with outbox.reader() as reader:
        await reader.get()
    assert counters.sent == {"notifications/resources/updated": 1}


def test_older_task_state_is_not_queued_after_a_newer_one() -> None:
    task = make_task()
    outbox = Outbox()
    subscription = Subscription(
        kinds=frozenset(),
        subscriptions=frozenset(),
        task_ids=frozenset({task.id}),
        scopes=None,
        view=None,
        outbox=outbox,
    )
    for version, message in ((1, "begun"), (3, "ended"), (2, "half")):
        changed = replace(task, version=version, message=message)
        subscription.tell_task(changed, {"statusMessage": message})
    assert [each["params"] for each in outbox.messages.values()] == [{"statusMessage": "ended"}]
