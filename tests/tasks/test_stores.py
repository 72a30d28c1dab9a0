"""Task stores: one suite for all implementations."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from gateway.access.identity import ANONYMOUS
from gateway.errors import NotStoredError
from gateway.state.database import StateDatabase
from gateway.state.fallback_connection import SqliteStatement
from gateway.state.replica import Replica
from gateway.state.state import DaemonState
from gateway.tasks import sqlite_store
from gateway.tasks.redis_store import RedisTaskStore
from gateway.tasks.sqlite_store import TASKS, SqliteTaskStore, open_task_store
from gateway.tasks.store import TaskStore
from gateway.tasks.task import Task, TaskCaller, TaskStatus
from tests.redis_server import redis_server


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def make_task(task_id: str = "one", *, created: float = 1000.0, ttl_ms: int = 60_000) -> Task:
    caller = TaskCaller(identity=ANONYMOUS, binding="memory", address="", counted_as="x", revision="2026-07-28")
    return Task(
        id=task_id,
        tool="tool",
        owner=None,
        caller=caller,
        call=b"{}",
        created=created,
        updated=created,
        ttl_ms=ttl_ms,
        poll_ms=1000,
        restarts=0,
        runner="me",
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Callable[[], float]) -> AsyncIterator[TaskStore]:
    if request.param == "redis":
        async with redis_server(tmp_path / "redis") as server, Replica(server.url, clock=clock) as replica:
            yield RedisTaskStore(replica, clock=clock)
        return
    async with DaemonState(tmp_path / "state" if request.param == "sqlite" else None, tables=[TASKS]) as state:
        made = SqliteTaskStore(state.database, clock=clock)
        await made.open()
        yield made


async def test_added_task_is_returned_unchanged(store: TaskStore) -> None:
    task = make_task()
    await store.add(task)
    assert await store.get("one") == task
    assert await store.get("other") is None
    assert store.counts["working"] == 1


async def test_replace_requires_the_previous_version(store: TaskStore) -> None:
    task = make_task()
    await store.add(task)
    done = replace(task, status=TaskStatus.COMPLETED, version=1, outcome=b'{"x":1}')
    assert await store.replace(done)
    late = replace(task, status=TaskStatus.FAILED, version=1)
    assert not await store.replace(late)
    assert await store.get("one") == done
    assert (store.counts["working"], store.counts["completed"], store.counts["failed"]) == (0, 1, 0)
    assert not await store.replace(replace(make_task("unknown"), version=1))


async def test_removed_task_is_unknown(store: TaskStore) -> None:
    await store.add(make_task())
    await store.remove("one")
    assert await store.get("one") is None
    assert store.counts["working"] == 0
    await store.remove("one")


async def test_expired_task_is_unknown(store: TaskStore, clock: Clock) -> None:
    await store.add(make_task())
    await store.add(make_task("later", ttl_ms=90_000))
    clock.now += 60
    assert await store.get("one") is None
    assert await store.expire(clock.now) == ["one"]
    assert await store.expire(clock.now) == []
    assert store.counts["working"] == 1


async def test_unfinished_tasks_and_the_newest_are_listed(store: TaskStore) -> None:
    for number, status in enumerate(TaskStatus):
        await store.add(replace(make_task(status.value, created=1000.0 + number), status=status))
    if store.process is None:  # of several tasks, the unclaimed one is claimed
        assert {task.id for task in await store.unfinished()} == {"working", "input_required"}
    assert [task.id for task in await store.newest(2)] == ["cancelled", "failed"]


async def test_reopened_database_has_its_tasks(tmp_path: Path, clock: Clock) -> None:
    task = make_task()
    for is_new in (True, False):
        async with DaemonState(tmp_path / "state", tables=[TASKS]) as state:
            store = SqliteTaskStore(state.database, clock=clock)
            await store.open()
            if is_new:
                await store.add(task)
            assert await store.get("one") == task
            assert store.counts["working"] == 1


async def test_unwritable_database_stores_no_task(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    async with DaemonState(blocked / "state", tables=[TASKS]) as state:
        store = open_task_store(state)
        assert store.problem
        with pytest.raises(NotStoredError, match="file"):
            await store.add(make_task())
        assert await store.get("one") is None


async def test_daemon_without_state_directory_keeps_tasks_in_memory() -> None:
    async with AsyncExitStack() as stack:
        state = await stack.enter_async_context(DaemonState(None, tables=[TASKS]))
        store = open_task_store(state)
        assert not store.problem
        await store.add(make_task(created=time.time()))
        assert await store.get("one") is not None


async def test_full_memory_store_rejects_tasks(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "MAX_BYTES", 2**20)
    async with StateDatabase(None, [TASKS]) as database:
        store = SqliteTaskStore(database, clock=clock)
        await store.add(replace(make_task(), outcome=b"x" * 2**20))
        with pytest.raises(NotStoredError, match="1 MiB"):
            await store.add(make_task("two"))
        clock.now += 60
        await store.expire(clock.now)
        await store.add(make_task("two"))


def test_poll_interval_grows_with_age_up_to_tenfold() -> None:
    task = make_task()
    ages = (0, 10, 50, 100, 1000)
    assert [task.poll_interval_ms(1000 + age) for age in ages] == [1000, 1000, 5000, 10_000, 10_000]


async def test_unreadable_record_does_not_hide_other_tasks(store: TaskStore) -> None:
    """The record is damaged, or was written by a newer version of the gateway."""
    for name in ("one", "two"):
        await store.add(replace(make_task(name), runner=""))
    for record in (b"\xc1", msgspec.msgpack.encode({"id": "one", "of": "the future"})):
        if isinstance(store, RedisTaskStore):
            await store._store.command("HSET", f"{store._task}one", "r", record)
            left = await store.claim()
            await store._store.command("ZADD", store._keys[2], 0, "one", 0, "two")
        else:
            assert isinstance(store, SqliteTaskStore)
            await store._database.run(SqliteStatement("UPDATE tasks SET record = ? WHERE id = 'one'", (record,)))
            left = await store.unfinished()
        assert [task.id for task in left] == ["two"]
        assert await store.get("one") is None
        assert [task.id for task in await store.newest(10)] == ["two"]
    assert set(await store.expire(2000.0)) == {"one", "two"}
    assert store.counts["working"] == 0
