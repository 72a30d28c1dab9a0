"""Defines the interface of task stores, and implements a store in memory.

A write succeeds only if the store contains the previous version of the task (`Task.version`), so a process cannot store
a result after another process has taken over the task.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Final, Protocol

import structlog

from gateway.errors import NotStoredError
from gateway.tasks.task import Task, decode_task, encode_task, read_task

log: Final = structlog.get_logger(__name__)

MAX_BYTES: Final = 256 * 2**20
"""When stored tasks reach this total size, no more tasks are created."""


class TaskStore(Protocol):
    @property
    def process(self) -> str | None:
        """The name of this process in a shared store, or None if no other process uses the store."""

    async def open(self) -> None: ...
    async def add(self, task: Task) -> None:
        """Store a new task, durably if possible. Raise NotStoredError if the task cannot be stored."""

    async def get(self, task_id: str) -> Task | None:
        """Return a task, or None if the task is unknown or expired."""

    async def replace(self, task: Task) -> bool:
        """Replace the previous version of the task. Return False if the store does not contain that version."""

    async def remove(self, task_id: str) -> None: ...
    async def watch(self, task_id: str) -> None:
        """Subscribe this process to changes of the task by other processes."""

    async def unfinished(self) -> Sequence[Task]:
        """Return the unfinished tasks of processes that have ended."""

    async def newest(self, count: int) -> Sequence[Task]:
        """Return up to `count` tasks, newest first."""

    async def expire(self, now: float) -> Sequence[str]:
        """Remove expired tasks and return their ids."""

    @property
    def problem(self) -> str:
        """The reason why no task can be stored now, or an empty string if tasks can be stored."""

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of tasks by status."""


class MemoryTaskStore:
    process: Final = None

    def __init__(self, *, clock: Callable[[], float] = time.time, max_bytes: int = MAX_BYTES) -> None:
        self._clock: Final = clock
        self._max_bytes: Final = max_bytes
        self._tasks: Final[dict[str, bytes]] = {}
        self._expiries: Final[list[tuple[float, str]]] = []
        self._size = 0
        self._counts: Final[Counter[str]] = Counter()

    async def open(self) -> None:
        pass

    async def add(self, task: Task) -> None:
        if self.problem:
            raise NotStoredError(self.problem)
        heappush(self._expiries, (task.expires, task.id))
        self._put(task, encode_task(task))

    async def get(self, task_id: str) -> Task | None:
        encoded = self._tasks.get(task_id)
        task = None if encoded is None else decode_task(encoded)
        return None if task is None or task.expires <= self._clock() else task

    async def replace(self, task: Task) -> bool:
        encoded = self._tasks.get(task.id)
        if encoded is None or decode_task(encoded).version != task.version - 1:
            return False
        self._put(task, encode_task(task))
        return True

    async def remove(self, task_id: str) -> None:
        self._count(self._tasks.pop(task_id, None), -1)

    async def watch(self, task_id: str) -> None:
        pass

    async def unfinished(self) -> Sequence[Task]:
        return [task for task in map(decode_task, self._tasks.values()) if not task.is_finished]

    async def newest(self, count: int) -> Sequence[Task]:
        ids = list(self._tasks)[-count:]
        return [decode_task(self._tasks[task_id]) for task_id in reversed(ids)]

    async def expire(self, now: float) -> Sequence[str]:
        expired = []
        while self._expiries and self._expiries[0][0] <= now:
            _, task_id = heappop(self._expiries)
            # The heap may contain removed tasks.
            if task_id in self._tasks:
                await self.remove(task_id)
                expired.append(task_id)
        return expired

    @property
    def problem(self) -> str:
        if self._size < self._max_bytes:
            return ""
        return f"stored tasks already use {self._max_bytes >> 20} MiB, which is the maximum"

    @property
    def counts(self) -> Mapping[str, int]:
        return self._counts

    def _put(self, task: Task, encoded: bytes) -> None:
        self._count(self._tasks.get(task.id), -1)
        self._tasks[task.id] = encoded
        self._count(encoded, 1)

    def _count(self, encoded: bytes | None, sign: int) -> None:
        if encoded is not None:
            self._size += sign * len(encoded)
            self._counts[decode_task(encoded).status] += sign


def readable(records: Iterable[bytes]) -> list[Task]:
    """Decode tasks. Skip unreadable records, which stay in the store until they expire."""
    found = [read_task(each) for each in records]
    if unread := found.count(None):
        log.warning("stored tasks cannot be read", tasks=unread)
    return [task for task in found if task is not None]
