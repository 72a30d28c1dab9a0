"""Stores tasks in memory, encoded, as the smallest form that they have. They last as long as the process."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Final

from gateway.tasks.store import NotStoredError
from gateway.tasks.task import Task, decode_task, encode_task

MAX_BYTES: Final = 256 * 2**20
"""Of all tasks together, with their results. More are not made; what is there stays until its time is over."""


class MemoryTaskStore:
    """Tasks by id."""

    process: Final = None

    def __init__(self, *, clock: Callable[[], float] = time.time, max_bytes: int = MAX_BYTES) -> None:
        self._clock: Final = clock
        self._max_bytes: Final = max_bytes
        self._tasks: Final[dict[str, bytes]] = {}
        """In the order in which they were made."""
        self._expiries: Final[list[tuple[float, str]]] = []
        """A heap."""
        self._size = 0
        self._counts: Final[Counter[str]] = Counter()

    async def open(self) -> None:
        """Nothing outlives the process."""

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
        self._remove(task_id)

    async def watch(self, task_id: str) -> None:
        """No other process changes it."""

    async def unfinished(self) -> Sequence[Task]:
        return [task for task in map(decode_task, self._tasks.values()) if not task.is_finished]

    async def newest(self, count: int) -> Sequence[Task]:
        ids = list(self._tasks)[-count:]
        return [decode_task(self._tasks[task_id]) for task_id in reversed(ids)]

    async def expire(self, now: float) -> Sequence[str]:
        expired = []
        while self._expiries and self._expiries[0][0] <= now:
            _, task_id = heappop(self._expiries)
            if self._remove(task_id):
                expired.append(task_id)
        return expired

    async def next_expiry(self) -> float | None:
        return self._expiries[0][0] if self._expiries else None

    @property
    def problem(self) -> str:
        if self._size < self._max_bytes:
            return ""
        return f"tasks and their results take up {self._max_bytes >> 20} MiB already"

    @property
    def counts(self) -> Mapping[str, int]:
        return self._counts

    def _put(self, task: Task, encoded: bytes) -> None:
        self._count(self._tasks.get(task.id), -1)
        self._tasks[task.id] = encoded
        self._count(encoded, 1)

    def _remove(self, task_id: str) -> bool:
        encoded = self._tasks.pop(task_id, None)
        self._count(encoded, -1)
        return encoded is not None

    def _count(self, encoded: bytes | None, sign: int) -> None:
        if encoded is not None:
            self._size += sign * len(encoded)
            self._counts[decode_task(encoded).status] += sign
