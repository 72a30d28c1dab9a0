"""The interface of what stores tasks. Memory and SQLite implement it; the same tests run over both.

A write names the version that it follows on (`Task.version`), and is refused if another came first: whoever has lost a
task to another process may not write its result any more.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from gateway.tasks.task import Task


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
