"""The interface of what stores tasks, and the store in memory. The same tests run over that, SQLite and Redis.

A write names the version that it follows on (`Task.version`), and is refused if another came first: whoever has lost a
task to another process may not write its result any more.
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
"""Of all tasks together, with their results. More are not made; what is there stays until its time is over."""


class NotStoredError(Exception):
    """The store cannot be written now; its text is why."""


class TaskStore(Protocol):
    """The tasks of a daemon, or of several."""

    @property
    def process(self) -> str | None:
        """The name of this process among those that share the store; None: there are no others."""

    async def open(self) -> None:
        """Find out what is stored."""

    async def add(self, task: Task) -> None:
        """Store a new task so that it survives the process, if anything here does.

        Raises:
            NotStoredError: it cannot be; nothing was stored.
        """

    async def get(self, task_id: str) -> Task | None:
        """The task; None if there is none, or its time is over."""

    async def replace(self, task: Task) -> bool:
        """Store a task in place of its former version; False if that is not what is stored."""

    async def remove(self, task_id: str) -> None:
        """Forget a task."""

    async def watch(self, task_id: str) -> None:
        """Be told from now on of changes that other processes make of a task, where there are others."""

    async def unfinished(self) -> Sequence[Task]:
        """The tasks that are neither completed, failed nor cancelled, and that no living process runs."""

    async def newest(self, count: int) -> Sequence[Task]:
        """The tasks that were made last, the newest first."""

    async def expire(self, now: float) -> Sequence[str]:
        """Forget the tasks whose time is over, and return their ids."""

    async def next_expiry(self) -> float | None:
        """The time at which the next task is over; None if there is none."""

    @property
    def problem(self) -> str:
        """The reason for which no task can be stored now; empty if one can."""

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of tasks, by status."""


class MemoryTaskStore:
    """Tasks in memory, encoded, as the smallest form that they have. They last as long as the process."""

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
            # A task that was removed is still in the heap.
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
    """The tasks that can be read; the others stay where they are until their time is over."""
    found = [read_task(each) for each in records]
    if unread := found.count(None):
        log.warning("stored tasks cannot be read", tasks=unread)
    return [task for task in found if task is not None]
