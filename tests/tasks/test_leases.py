"""Leases: replicas share tasks, never run one twice at once, and take over those of dead replicas."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from gateway.events import Events
from gateway.state.replica import Replica
from gateway.tasks import leases, redis_store
from gateway.tasks.leases import Leases
from gateway.tasks.redis_store import RedisTaskStore
from gateway.tasks.runner import TaskRunner
from gateway.tasks.task import Ending, Task, TaskRun, TaskStatus
from tests.redis_server import RedisServer, redis_server
from tests.tasks.test_stores import make_task
from tests.waiting import until

SECONDS: Final = 60


class Worker:
    """A replica with its task runner."""

    def __init__(self, replica: Replica) -> None:
        self.store: Final = RedisTaskStore(replica, clock=time.time)
        self.runner: Final = TaskRunner(self.store, work=self.work, events=Events())
        self.begun: Final[list[str]] = []
        self.told: Final[list[TaskStatus]] = []
        self.release: Final = asyncio.Event()
        self.leases: Final = Leases(self.runner, self.store, task_changed=lambda task: self.told.append(task.status))

    async def work(self, run: TaskRun) -> Ending:
        self.begun.append(run.task.id)
        await self.release.wait()
        return Ending(status=TaskStatus.COMPLETED, outcome=b"{}")

    async def begin(self, task_id: str, *, restarts: int = 0) -> Task:
        task = replace(
            make_task(task_id, created=time.time(), ttl_ms=600_000), restarts=restarts, runner=self.runner.id
        )
        await self.runner.add(task)
        run = self.runner.run_of(task)
        self.runner.follow(run, asyncio.create_task(self.work(run)))
        return task


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with redis_server(tmp_path / "redis") as it:
        yield it


@pytest.fixture
async def workers(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Worker]]:
    """Two replicas with short leases. The first renews leases only when the test starts it."""
    monkeypatch.setattr(redis_store, "LEASE_SECONDS", 3.0)
    monkeypatch.setattr(leases, "_TICK_SECONDS", 0.1)
    monkeypatch.setattr(leases, "_MARGIN_SECONDS", 1.0)
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(2):
            replica = await stack.enter_async_context(Replica(server.url, clock=time.time))
            worker = Worker(replica)
            await replica.open()
            stack.push_async_callback(worker.runner.close)
            made.append(worker)
        await stack.enter_async_context(made[1].leases)
        yield made


async def lease_of(server: RedisServer, task_id: str) -> float:
    """Return the end of the lease of a task, in milliseconds."""
    return await server.client.zscore("mcp-gateway:{tasks}:leases", task_id) or 0.0


async def ended(worker: Worker, task_id: str) -> Task:
    async with asyncio.timeout(SECONDS):
        while (task := await worker.runner.get(task_id)) is None or not task.is_finished:
            await asyncio.sleep(0.02)
    return task


async def test_task_of_silent_replica_is_restarted_and_late_result_dropped(
    workers: list[Worker],
) -> None:
    silent, other = workers
    await silent.begin("one", restarts=1)
    await until(lambda: other.begun == ["one"])
    silent.release.set()  # finishes a task that it no longer owns
    await until(lambda: silent.runner.running == 0)
    found = await other.runner.get("one")
    assert found is not None
    assert (found.status, found.runner, found.restarts) == (TaskStatus.WORKING, other.runner.id, 0)
    assert other.runner.limiter.unfinished_by_caller == {"x": 1}
    other.release.set()
    assert (await ended(silent, "one")).status is TaskStatus.COMPLETED
    # One replica is notified of the end, and neither counts the task.
    await until(lambda: [each.runner.limiter.unfinished for each in workers] == [0, 0])


async def test_task_without_restarts_fails_with_its_replica(workers: list[Worker]) -> None:
    silent, other = workers
    await silent.begin("one")
    failed = await ended(other, "one")
    assert (failed.status, failed.message) == (TaskStatus.FAILED, "the server stopped before the task finished")
    assert other.begun == []


async def test_renewed_lease_keeps_the_task_and_stores_its_message(server: RedisServer, workers: list[Worker]) -> None:
    renewing, other = workers
    async with renewing.leases:
        task = await renewing.begin("one", restarts=1)
        renewing.runner.runs[0].say("half", at=time.time())
        async with asyncio.timeout(SECONDS):
            while (found := await other.runner.get("one")) is None or found.message != "half":
                await asyncio.sleep(0.05)
        first = await lease_of(server, "one")
        async with asyncio.timeout(SECONDS):
            while await lease_of(server, "one") < first + 4000:  # milliseconds: longer than a lease
                await asyncio.sleep(0.1)
        assert other.begun == []
        await other.runner.store.watch("one")
        await other.runner.cancel(task.id)
        await until(lambda: renewing.runner.running == 0)  # notified by the replica that cancelled
        assert (await ended(renewing, "one")).status is TaskStatus.CANCELLED
        await until(lambda: renewing.runner.limiter.unfinished == 0)


async def test_restartable_task_stops_when_its_lease_cannot_be_renewed(
    server: RedisServer, workers: list[Worker]
) -> None:
    alone, _ = workers
    async with alone.leases:
        await alone.begin("again", restarts=1)
        await alone.begin("once")
        await until(lambda: len(alone.begun) == 2)
        await server.stop()
        await until(lambda: not alone.runner.is_running("again"))
        assert alone.runner.is_running("once")
