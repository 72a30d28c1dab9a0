"""Defines the interface of task stores.

A write succeeds only if the store contains the previous version of the task (`Task.version`), so a process cannot store
a result after another process has taken over the task.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

import structlog

from gateway.tasks.task import Task, read_task

log: Final = structlog.get_logger(__name__)


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


def readable(records: Iterable[bytes]) -> list[Task]:
    """Decode tasks. Skip unreadable records, which stay in the store until they expire."""
    found = [read_task(each) for each in records]
    if unread := found.count(None):
        log.warning("stored tasks cannot be read", tasks=unread)
    return [task for task in found if task is not None]
