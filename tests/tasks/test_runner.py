"""The task runner with slow and failing stores."""

import asyncio
import time
from typing import Final

import pytest
from msgspec.structs import replace

from gateway.errors import StoreUnavailableError
from gateway.events import Events
from gateway.state.database import StateDatabase
from gateway.tasks import runner as runner_module
from gateway.tasks.runner import TaskRunner
from gateway.tasks.sqlite_store import TASKS, SqliteTaskStore
from gateway.tasks.task import Ending, Task, TaskRun, TaskStatus
from tests.tasks.test_stores import make_task
from tests.waiting import until

SECONDS: Final = 30.0


class BreakingStore(SqliteTaskStore):
    """A store that fails once, after a write."""

    def __init__(self) -> None:
        super().__init__(StateDatabase(None, [TASKS]), clock=time.time)
        self._breaks = True

    async def replace(self, task: Task) -> bool:
        is_written = await super().replace(task)
        if self._breaks:
            self._breaks = False
            raise StoreUnavailableError("away")
        return is_written


async def work(_: TaskRun) -> Ending:
    return Ending(status=TaskStatus.COMPLETED, outcome=b"{}")


async def test_task_is_released_after_a_write_with_lost_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "_STORE_SECONDS", 0.0)
    store = BreakingStore()
    runner = TaskRunner(store, work=work, events=Events())
    task = replace(make_task(created=time.time()), runner=runner.id)
    runner.limiter.count(task.id, "x")
    await runner.add(task)
    run = runner.run_of(task)
    runner.follow(run, asyncio.create_task(work(run)))
    await until(lambda: not runner.running)
    assert store.counts[TaskStatus.COMPLETED] == 1
    assert runner.limiter.unfinished == 0
    await runner.close()


async def test_expired_task_is_removed() -> None:
    store = SqliteTaskStore(StateDatabase(None, [TASKS]), clock=time.time)
    runner = TaskRunner(store, work=work, events=Events())
    try:
        await runner.add(make_task("long", created=time.time(), ttl_ms=600_000))
        await runner.add(make_task("short", created=time.time(), ttl_ms=100))
        await until(lambda: store.counts[TaskStatus.WORKING] <= 1)
        assert [task.id for task in await runner.newest(2)] == ["long"]
    finally:
        await runner.close()


async def test_task_of_an_earlier_process_expires_without_new_tasks() -> None:
    database = StateDatabase(None, [TASKS])
    waiting = replace(make_task(created=time.time(), ttl_ms=100), status=TaskStatus.INPUT_REQUIRED)
    await SqliteTaskStore(database, clock=time.time).add(waiting)
    runner = TaskRunner(SqliteTaskStore(database, clock=time.time), work=work, events=Events())
    try:
        await runner.load()
        assert runner.limiter.unfinished == 1
        await until(lambda: runner.limiter.unfinished == 0)
    finally:
        await runner.close()
