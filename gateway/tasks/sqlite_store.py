"""Stores tasks in the state database."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gateway.errors import NotStoredError
from gateway.state.database import StateDatabase
from gateway.state.fallback_connection import SqliteStatement
from gateway.state.state import DaemonState
from gateway.tasks.redis_store import RedisTaskStore
from gateway.tasks.store import TaskStore, readable
from gateway.tasks.task import UNFINISHED, Task, encode_task, read_task

TASKS: Final = """
CREATE TABLE IF NOT EXISTS tasks (
    id TEXT PRIMARY KEY, version INTEGER NOT NULL, status TEXT NOT NULL,
    created REAL NOT NULL, expires REAL NOT NULL, record BLOB NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS tasks_expires ON tasks (expires)
"""
MAX_BYTES: Final = 256 * 2**20
"""When the database in memory reaches this size, no more tasks are created."""
_USED_BYTES: Final = SqliteStatement(
    "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
)
_UNFINISHED: Final = ", ".join(f"'{status}'" for status in sorted(UNFINISHED))


def open_task_store(state: DaemonState) -> TaskStore:
    """Return a store in Redis or in the state database, which is in memory if the daemon has no state directory."""
    if state.replica is not None:
        return RedisTaskStore(state.replica, clock=state.clock)
    return SqliteTaskStore(state.database, clock=state.clock)


class SqliteTaskStore:
    process: Final = None

    def __init__(self, database: StateDatabase, *, clock: Callable[[], float]) -> None:
        self._database: Final = database
        self._clock: Final = clock
        self._counts: Final[Counter[str]] = Counter()

    async def open(self) -> None:
        rows = await self._database.run(SqliteStatement("SELECT status, count(*) FROM tasks GROUP BY status"))
        self._counts.update(dict(rows))

    async def add(self, task: Task) -> None:
        row = (task.id, task.version, task.status, task.created, task.expires, encode_task(task))
        if self._database.connection.path is None:
            [(used,)] = await self._database.run(_USED_BYTES)
            if used >= MAX_BYTES:
                raise NotStoredError(f"stored tasks already use {MAX_BYTES >> 20} MiB, which is the maximum")
        # ext-tasks, "Task Creation": a task must be durable before the response.
        await self._database.run(SqliteStatement("INSERT INTO tasks VALUES (?, ?, ?, ?, ?, ?)", row), durable=True)
        self._counts[task.status] += 1

    async def get(self, task_id: str) -> Task | None:
        rows = await self._database.run(SqliteStatement("SELECT record FROM tasks WHERE id = ?", (task_id,)))
        task = read_task(rows[0][0]) if rows else None
        return None if task is None or task.expires <= self._clock() else task

    async def replace(self, task: Task) -> bool:
        encoded = encode_task(task)
        former = await self._database.run(lambda connection: _replace(connection, task, encoded))
        if former is None:
            return False
        self._counts[former] -= 1
        self._counts[task.status] += 1
        return True

    async def remove(self, task_id: str) -> None:
        query = "DELETE FROM tasks WHERE id = ? RETURNING id, status"
        self._uncount(await self._database.run(SqliteStatement(query, (task_id,))))

    async def watch(self, task_id: str) -> None:
        pass

    async def unfinished(self) -> Sequence[Task]:
        query = f"SELECT record FROM tasks WHERE status IN ({_UNFINISHED}) ORDER BY created"  # noqa: S608 - constants
        return await self._database.run(lambda connection: _tasks(connection, query))

    async def newest(self, count: int) -> Sequence[Task]:
        # `rowid` orders tasks with equal times.
        query = "SELECT record FROM tasks ORDER BY created DESC, rowid DESC LIMIT ?"
        return await self._database.run(lambda connection: _tasks(connection, query, count))

    async def expire(self, now: float) -> Sequence[str]:
        query = "DELETE FROM tasks WHERE expires <= ? RETURNING id, status"
        rows = await self._database.run(SqliteStatement(query, (now,)))
        self._uncount(rows)
        return [task_id for task_id, _ in rows]

    @property
    def problem(self) -> str:
        return self._database.connection.problem

    @property
    def counts(self) -> Mapping[str, int]:
        return self._counts

    def _uncount(self, rows: Sequence[tuple[str, str]]) -> None:
        self._counts.subtract(Counter(status for _, status in rows))


def _tasks(connection: sqlite3.Connection, query: str, *values: int) -> list[Task]:
    return readable(row[0] for row in connection.execute(query, values))


def _replace(connection: sqlite3.Connection, task: Task, encoded: bytes) -> str | None:
    row = connection.execute("SELECT version, status FROM tasks WHERE id = ?", (task.id,)).fetchone()
    if row is None or row[0] != task.version - 1:
        return None
    connection.execute(
        "UPDATE tasks SET version = ?, status = ?, record = ? WHERE id = ?",
        (task.version, task.status, encoded, task.id),
    )
    former: str = row[1]
    return former
