"""Renews the leases of the tasks that this process runs, and takes over those that no living process runs.

A lease that could not be renewed in time is lost, whatever the store says later: a task that another process may begin
again is stopped then, so that it never runs twice at once. One that nobody begins again goes on, and its result is
written if nobody has written meanwhile that it failed.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import structlog

from gateway.errors import StoreAwayError
from gateway.tasks.redis_store import RedisTaskStore
from gateway.tasks.runner import TaskRunner
from gateway.tasks.task import Task

log: Final = structlog.get_logger(__name__)

# What runs say of themselves reaches other processes at this pace.
_TICK_SECONDS: Final = 1.0
_RENEWALS: Final = 3
"""Renewals for the length of a lease."""
_MARGIN_SECONDS: Final = 2.0
"""How long before its end a lease that was not renewed counts as lost: clocks and messages take a while."""


class Leases:
    """The leases of one runner."""

    def __init__(self, runner: TaskRunner, store: RedisTaskStore, *, told: Callable[[Task], None]) -> None:
        """Renew nothing yet; `told` is called with tasks that other processes have changed."""
        self._runner: Final = runner
        self._store: Final = store
        self._told: Final = told
        self._renewed_at: dict[str, float] = {}
        """By task, the event loop's time of the last renewal."""
        self._said: dict[str, str] = {}
        """By task, the message that was written last."""
        self._checked_at = 0.0
        self._away_until = 0.0
        """The last time at which the store could not be used."""
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
                if loop.time() - self._checked_at >= self._store.lease_seconds / _RENEWALS:
                    self._checked_at = loop.time()
                    await self._take_over(loop.time())
            except StoreAwayError:
                self._away_until = loop.time()
                self._give_up_what_is_lost(loop.time())
            except Exception:  # Boundary: without leases other processes would begin all again.
                log.exception("leases of tasks not renewed")
            await asyncio.sleep(_TICK_SECONDS)

    async def _renew(self, now: float) -> None:
        """Renew the leases that are due, and those whose task has said something new."""
        runs = {run.task.id: run for run in self._runner.runs}
        period = self._store.lease_seconds / _RENEWALS
        due = {
            task_id: (run.message, run.message_at) if run.message else None
            for task_id, run in runs.items()
            if now - self._renewed_at.get(task_id, -period) >= period or self._said.get(task_id, "") != run.message
        }
        self._renewed_at = {task_id: at for task_id, at in self._renewed_at.items() if task_id in runs}
        self._said = {task_id: said for task_id, said in self._said.items() if task_id in runs}
        for task_id in runs:
            self._renewed_at.setdefault(task_id, now)  # it was stored a moment ago, with a lease
        if not due:
            return
        lost = await self._store.renew(self._runner.id, due)
        for task_id, message in due.items():
            # The time of the request, not of its answer: the store's lease ends no sooner than is thought here.
            self._renewed_at[task_id] = now
            self._said[task_id] = "" if message is None else message[0]
        for task_id in lost:
            await self._changed(task_id)

    async def _take_over(self, now: float) -> None:
        # What is over goes first: it must not be claimed and begun again.
        for task_id in await self._store.expire(self._runner.clock()):
            self._runner.lose(task_id)
        if self._runner.problem or now - self._away_until < self._store.lease_seconds:
            return  # those who run them could not renew their leases either
        for task in await self._store.claim():
            if not self._runner.is_running(task.id):
                log.warning("task taken over", task=task.id, tool=task.tool, restarts_left=task.restarts)
                await self._runner.adopt(task)

    def _give_up_what_is_lost(self, now: float) -> None:
        """Stop what another process may begin again now."""
        for run in self._runner.runs:
            left = self._renewed_at.get(run.task.id, now) + self._store.lease_seconds - _MARGIN_SECONDS - now
            if left <= 0 and run.task.restarts:
                log.warning("task stopped: its lease could not be renewed", task=run.task.id, tool=run.task.tool)
                self._runner.lose(run.task.id)

    async def _changed(self, task_id: str) -> None:
        """Follow a change that another process has made."""
        task = await self._store.get(task_id)
        if task is None or task.is_finished or (task.runner != self._runner.id and self._runner.is_running(task_id)):
            self._runner.lose(task_id, is_over=task is None or task.is_finished)
        if task is not None:
            self._told(task)
