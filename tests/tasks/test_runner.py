"""The runner of tasks counts and forgets them as it should, whatever the store does at that moment."""

import asyncio
import time
from typing import Final

import pytest
from msgspec.structs import replace

from gateway.errors import StoreAwayError
from gateway.events import Events
from gateway.tasks import runner as runner_module
from gateway.tasks.runner import TaskRunner
from gateway.tasks.store import MemoryTaskStore
from gateway.tasks.task import Ending, Task, TaskRun, TaskStatus
from tests.tasks.test_stores import make_task

SECONDS: Final = 30.0
"""Less than the longest pause between two looks."""


class SlowStore(MemoryTaskStore):
    """A store whose first answer about expiry is late, as one behind a network may be."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Final = asyncio.Event()
        self.answered: Final = asyncio.Event()

    async def next_expiry(self) -> float | None:
        found = await super().next_expiry()
        self.asked.set()
        await self.answered.wait()
        return found


class BreakingStore(MemoryTaskStore):
    """A store that goes away once, between a write and its answer."""

    def __init__(self) -> None:
        super().__init__()
        self._breaks = True

    async def replace(self, task: Task) -> bool:
        is_written = await super().replace(task)
        if self._breaks:
            self._breaks = False
            raise StoreAwayError("away")
        return is_written


async def work(_: TaskRun) -> Ending:
    return Ending(status=TaskStatus.COMPLETED, outcome=b"{}")


async def test_a_task_whose_end_was_written_unnoticed_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "_STORE_SECONDS", 0.0)
    store = BreakingStore()
    runner = TaskRunner(store, work=work, events=Events())
    task = replace(make_task(created=time.time()), runner=runner.id)
    runner.limiter.count(task.id, "x")
    await runner.add(task)
    run = runner.run_of(task)
    runner.follow(run, asyncio.create_task(work(run)))
    async with asyncio.timeout(SECONDS):
        while runner.running:
            await asyncio.sleep(0)
    assert store.counts[TaskStatus.COMPLETED] == 1
    assert runner.limiter.unfinished == 0
    await runner.close()


async def test_a_task_that_is_added_while_the_store_looks_for_the_next_expiry_is_forgotten_in_time() -> None:
    store = SlowStore()
    runner = TaskRunner(store, work=work, events=Events())
    try:
        await runner.add(make_task("long", created=time.time(), ttl_ms=600_000))
        await store.asked.wait()
        await runner.add(make_task("short", created=time.time(), ttl_ms=100))
        store.answered.set()
        async with asyncio.timeout(SECONDS):
            while store.counts[TaskStatus.WORKING] > 1:
                await asyncio.sleep(0.02)
        assert [task.id for task in await runner.newest(2)] == ["long"]
    finally:
        await runner.close()
