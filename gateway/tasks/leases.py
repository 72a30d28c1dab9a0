"""Renews the leases of running tasks, and takes over tasks with expired leases.

If a process cannot renew the lease of a restartable task, the process stops the task before the lease expires. So the
task never runs in two processes at once. A task that cannot be restarted continues, and its result is stored unless
another process has marked the task as failed.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import structlog

from gateway.errors import StoreUnavailableError
from gateway.tasks.redis_store import RedisTaskStore
from gateway.tasks.runner import TaskRunner
from gateway.tasks.task import Task

log: Final = structlog.get_logger(__name__)

# Progress messages also reach other processes with this delay.
_TICK_SECONDS: Final = 1.0
_RENEWALS_PER_LEASE: Final = 3
_MARGIN_SECONDS: Final = 2.0
"""A lease counts as lost this long before it expires, to allow for delays and clock differences."""


class Leases:
    def __init__(self, runner: TaskRunner, store: RedisTaskStore, *, task_changed: Callable[[Task], None]) -> None:
        """Create a lease keeper. `task_changed` is called with each task that another process has changed."""
        self._runner: Final = runner
        self._store: Final = store
        self._task_changed: Final = task_changed
        self._renewed_at: dict[str, float] = {}
        """The time of the last renewal by task id, on the event loop's clock."""
        self._said: dict[str, str] = {}
        self._checked_at = 0.0
        self._unavailable_until = 0.0
        """The last time at which the store was unreachable, on the event loop's clock."""
        self._task: asyncio.Task[None] | None = None
        store.on_change(self._changed)

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._keep(), name="tasks: leases")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                await self._renew(loop.time())
                if loop.time() - self._checked_at >= self._store.lease_seconds / _RENEWALS_PER_LEASE:
                    self._checked_at = loop.time()
                    await self._take_over(loop.time())
            except StoreUnavailableError:
                self._unavailable_until = loop.time()
                self._stop_lost_tasks(loop.time())
            except Exception:  # Boundary: without leases, other processes would restart all tasks
                log.exception("leases of tasks not renewed")
            await asyncio.sleep(_TICK_SECONDS)

    async def _renew(self, now: float) -> None:
        runs = {run.task.id: run for run in self._runner.runs}
        period = self._store.lease_seconds / _RENEWALS_PER_LEASE
        due = {
            task_id: (run.message, run.message_at) if run.message else None
            for task_id, run in runs.items()
            if now - self._renewed_at.get(task_id, -period) >= period or self._said.get(task_id, "") != run.message
        }
        self._renewed_at = {task_id: at for task_id, at in self._renewed_at.items() if task_id in runs}
        self._said = {task_id: said for task_id, said in self._said.items() if task_id in runs}
        for task_id in runs:
            self._renewed_at.setdefault(task_id, now)  # storing the task started its lease
        if not due:
            return
        lost = await self._store.renew(self._runner.id, due)
        for task_id, message in due.items():
            # Use the time before the request, so that the lease in the store never ends earlier than assumed here.
            self._renewed_at[task_id] = now
            self._said[task_id] = "" if message is None else message[0]
        for task_id in lost:
            await self._changed(task_id)

    async def _take_over(self, now: float) -> None:
        # Remove expired tasks first, because they must not be restarted.
        for task_id in await self._store.expire(self._runner.clock()):
            self._runner.lose(task_id)
        if self._runner.problem or now - self._unavailable_until < self._store.lease_seconds:
            return  # other processes could not renew their leases either
        for task in await self._store.claim():
            if not self._runner.is_running(task.id):
                log.warning("task taken over", task=task.id, tool=task.tool, restarts_left=task.restarts)
                await self._runner.adopt(task)

    def _stop_lost_tasks(self, now: float) -> None:
        for run in self._runner.runs:
            left = self._renewed_at.get(run.task.id, now) + self._store.lease_seconds - _MARGIN_SECONDS - now
            if left <= 0 and run.task.restarts:
                log.warning("task stopped: its lease could not be renewed", task=run.task.id, tool=run.task.tool)
                self._runner.lose(run.task.id)

    async def _changed(self, task_id: str) -> None:
        task = await self._store.get(task_id)
        if task is None or task.is_finished or (task.runner != self._runner.id and self._runner.is_running(task_id)):
            self._runner.lose(task_id, is_over=task is None or task.is_finished)
        if task is not None:
            self._task_changed(task)
