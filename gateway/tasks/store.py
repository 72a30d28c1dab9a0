"""The interface of task stores, and the store in memory.

Writes are optimistic: a write fails unless the stored version is the one before (`Task.version`). So a process that has
lost a task to another process cannot store a result.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Final, Protocol

import structlog

from gateway.tasks.task import Task, decode_task, encode_task, read_task

log: Final = structlog.get_logger(__name__)

MAX_BYTES: Final = 256 * 2**20
"""The size of all tasks with their results at which no more tasks are created."""


class NotStoredError(Exception):
    """The store cannot be written now. The text has the reason."""


class TaskStore(Protocol):
    """Stores the tasks of one or several daemons."""

    @property
    def process(self) -> str | None:
        """The name of this process, if several share the store."""

    async def open(self) -> None: ...
    async def add(self, task: Task) -> None:
        """Store a new task durably, if the store is durable.

        Raises:
            NotStoredError: nothing was stored.
        """

    async def get(self, task_id: str) -> Task | None:
        """Return the task; None if it does not exist or has expired."""

    async def replace(self, task: Task) -> bool:
        """Replace the previous version of a task; False if a different version is stored."""

    async def remove(self, task_id: str) -> None: ...
    async def watch(self, task_id: str) -> None:
        """Receive changes of a task by other processes from now on."""

    async def unfinished(self) -> Sequence[Task]:
        """Return the unfinished tasks that no living process runs."""

    async def newest(self, count: int) -> Sequence[Task]:
        """Return the latest tasks, newest first."""

    async def expire(self, now: float) -> Sequence[str]:
        """Remove expired tasks, and return their ids."""

    async def next_expiry(self) -> float | None:
        """Return the time at which the next task expires; None without tasks."""

    @property
    def problem(self) -> str:
        """The reason why no task can be stored now; empty if one can."""

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of tasks, by status."""


class MemoryTaskStore:
    """Tasks in memory, encoded to save space."""

    process: Final = None

    def __init__(self, *, clock: Callable[[], float] = time.time, max_bytes: int = MAX_BYTES) -> None:
        self._clock: Final = clock
        self._max_bytes: Final = max_bytes
        self._tasks: Final[dict[str, bytes]] = {}
        """In order of creation."""
        self._expiries: Final[list[tuple[float, str]]] = []
        """A heap."""
        self._size = 0
        self._counts: Final[Counter[str]] = Counter()

    async def open(self) -> None:
        """Do nothing: the store starts empty."""

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
        """Do nothing: no other process has the tasks."""

    async def unfinished(self) -> Sequence[Task]:
        return [task for task in map(decode_task, self._tasks.values()) if not task.is_finished]

    async def newest(self, count: int) -> Sequence[Task]:
        ids = list(self._tasks)[-count:]
        return [decode_task(self._tasks[task_id]) for task_id in reversed(ids)]

    async def expire(self, now: float) -> Sequence[str]:
        expired = []
        while self._expiries and self._expiries[0][0] <= now:
            _, task_id = heappop(self._expiries)
            # Removed tasks are still in the heap.
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


def readable(records: Iterable[bytes]) -> list[Task]:
    """Return the readable tasks. Others stay in the store until they expire."""
    found = [read_task(each) for each in records]
    if unread := found.count(None):
        log.warning("stored tasks cannot be read", tasks=unread)
    return [task for task in found if task is not None]
