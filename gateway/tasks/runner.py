"""Runs tasks, stores the results, and restarts tasks of processes that have ended."""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Final, NoReturn

import msgspec
import structlog
from msgspec.structs import replace

from gateway.background_tasks import BackgroundTasks
from gateway.config.models.server import TaskLimits
from gateway.errors import NotStoredError, OverLimitError, StoreUnavailableError
from gateway.events import Events
from gateway.json_types import Json
from gateway.tasks.store import TaskStore
from gateway.tasks.task import STOPPED, Ending, Task, TaskRun, TaskStatus, ended, failed, left_behind

log: Final = structlog.get_logger(__name__)

_SWEEP_SECONDS: Final = 1.0
_STORE_SECONDS: Final = 1.0
_ID_BYTES: Final = 16
"""128 bits, because the id of an anonymous task is enough to read the task (ext-tasks, "Security Considerations")."""
_RETRY_AFTER_SECONDS: Final = 10
_ATTEMPTS: Final = 8
"""How often a change to a task is attempted if concurrent changes interfere."""


Work = Callable[[TaskRun], Coroutine[Json, Json, Ending]]


class TaskChanged(msgspec.Struct, frozen=True):
    """An event that is published when a task is created or changes its status."""

    task: Task


class TaskProgressed(msgspec.Struct, frozen=True):
    task: Task


class TaskCancelled(msgspec.Struct, frozen=True):
    task: Task
    """The state of the task before the cancellation."""


class TaskRunner:
    def __init__(self, store: TaskStore, *, work: Work, events: Events, clock: Callable[[], float] = time.time) -> None:
        self._events: Final = events
        self.store: Final = store
        self.clock: Final = clock
        self.limiter: Final = TaskLimiter()
        self.id: Final = store.process or secrets.token_hex(8)
        self._work: Final = work
        self._running: Final[dict[str, tuple[TaskRun, asyncio.Task[Ending]]]] = {}
        self._left: Sequence[Task] = ()
        self._abandoned: Final[set[asyncio.Task[Ending]]] = set()
        self._writing: Final = BackgroundTasks()
        self._sweeper: asyncio.Task[None] | None = None
        self._is_stopping = False

    async def load(self) -> None:
        """Load the unfinished tasks of earlier processes. Call this method before clients connect."""
        await self.store.open()
        self._left = await self.store.unfinished()
        for task in self._left:
            self.limiter.count(task.id, task.caller.counted_as)
        if any(self.store.counts.values()):
            self._begin_sweeps()

    async def recover(self) -> None:
        left, self._left = self._left, ()
        for task in left:
            if task.status is TaskStatus.WORKING:
                await self.adopt(task)

    async def close(self) -> None:
        await self.drain(0)
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def runs(self) -> Sequence[TaskRun]:
        return [run for run, _ in self._running.values()]

    def is_running(self, task_id: str) -> bool:
        return task_id in self._running

    @property
    def problem(self) -> str:
        """The reason why no task can be created now, or an empty string if tasks can be created."""
        return "the server is stopping" if self._is_stopping else self.store.problem

    async def add(self, task: Task) -> None:
        """Store a new task. Raise NotStoredError if the task cannot be stored."""
        if self._is_stopping:
            raise NotStoredError(self.problem)
        await self.store.add(task)
        if task.is_finished:
            self.limiter.release(task.id)
        self._begin_sweeps()
        self._events.publish(TaskChanged(task))

    def lose(self, task_id: str, *, is_over: bool = True) -> None:
        """Stop working on a task without storing a result, because the task has ended or belongs to another process."""
        self._stop(task_id)
        if is_over:
            self.limiter.release(task_id)

    async def discard(self, task_id: str) -> None:
        """Remove a task whose id no client has received."""
        self.limiter.release(task_id)
        await self.store.remove(task_id)

    def abandon(self, working: asyncio.Task[Ending]) -> None:
        working.cancel()
        self._abandoned.add(working)
        working.add_done_callback(self._abandoned.discard)

    def run_of(self, task: Task, caller: object = None) -> TaskRun:
        return TaskRun(task, on_message=self._message_changed, caller=caller)

    def follow(self, run: TaskRun, working: asyncio.Task[Ending]) -> None:
        self._running[run.task.id] = run, working
        working.add_done_callback(lambda _: self._writing.begin(self._ended(run, working), name="task: write"))

    async def get(self, task_id: str) -> Task | None:
        task = await self.store.get(task_id)
        running = self._running.get(task_id)
        if task is None or running is None or task.status is not TaskStatus.WORKING:
            return task
        run = running[0]
        return task if run.message == task.message else replace(task, message=run.message, updated=run.message_at)

    async def newest(self, count: int) -> Sequence[Task]:
        return [await self.get(task.id) or task for task in await self.store.newest(count)]

    async def answer(self, task_id: str, apply: Callable[[Task], Task | None], *, caller: object = None) -> Task | None:
        """Add the client's answers to a task. The task continues when all its questions are answered.

        `apply` returns a copy of the task with the answers, or None to leave the task unchanged.
        """

        def answered(task: Task) -> Task | None:
            wanted = apply(task)
            if wanted is None or wanted.status is not TaskStatus.WORKING:
                return wanted
            # A stopping process leaves the work to the next process.
            return replace(wanted, runner="" if self._is_stopping else self.id)

        changed = await self._change(task_id, answered)
        if changed is not None and changed.status is TaskStatus.WORKING and not self._is_stopping:
            self._start(changed, caller)
        return changed

    async def cancel(self, task_id: str, message: str = "") -> None:
        before: list[Task] = []

        def cancelled(task: Task) -> Task:
            before[:] = [task]
            return replace(task, status=TaskStatus.CANCELLED, message=message, questions=b"", memory=b"")

        # Store the status first, so that no other process restarts the task.
        if await self._change(task_id, cancelled) is not None:
            self._stop(task_id)
            self._events.publish(TaskCancelled(*before))

    async def drain(self, seconds: float) -> None:
        """Wait up to `seconds` for running tasks. Release unfinished tasks for a restart, or mark them as failed."""
        self._is_stopping = True
        working = [working for _, working in self._running.values()]
        if working and seconds > 0:
            await asyncio.wait(working, timeout=seconds)
        # Record this before the work stops, so that a late result is not stored.
        for run, each in list(self._running.values()):
            if not each.done():
                with suppress(StoreUnavailableError):  # the lease will expire
                    await self._change(run.task.id, left_behind)
                self._stop(run.task.id)
        await asyncio.gather(*working, return_exceptions=True)
        await self._writing.wait()

    async def adopt(self, task: Task) -> None:
        """Restart a task of another process, or mark the task as failed if no restarts are left."""
        # Without a runner, `left_behind` has already counted the restart.
        left = left_behind if task.runner else lambda found: found
        changed = await self._change(task.id, lambda found: replace(left(found), runner=self.id))
        if changed is not None and changed.status is TaskStatus.WORKING:
            self._start(changed)

    def _start(self, task: Task, caller: object = None) -> None:
        # Count the task here, because the process that counted it may have ended.
        self.limiter.count(task.id, task.caller.counted_as)
        run = self.run_of(task, caller)
        self.follow(run, asyncio.create_task(self._work(run), name=f"task of {task.tool}"))

    def _stop(self, task_id: str) -> None:
        running = self._running.pop(task_id, None)
        if running is not None:
            running[1].cancel()

    async def _ended(self, run: TaskRun, working: asyncio.Task[Ending]) -> None:
        if self._running.get(run.task.id, (None,))[0] is not run:
            _ = working.cancelled() or working.exception()  # marks the exception as retrieved
            return
        try:
            ending = working.result()
        except asyncio.CancelledError:
            ending = failed(STOPPED)
        except Exception:  # Boundary: a bug must not leave the task unfinished
            log.exception("task failed", task=run.task.id, tool=run.task.tool)
            ending = failed("Internal error")
        await self._write_ending(run, ending)
        # The lease is renewed until the result is written. Meanwhile, a response could have started another run.
        if self._running.get(run.task.id, (None,))[0] is run:
            del self._running[run.task.id]

    async def _write_ending(self, run: TaskRun, ending: Ending) -> None:
        while True:
            try:
                await self._change(run.task.id, lambda task: ended(task, ending) if task.runner == self.id else None)
            except StoreUnavailableError:
                if self._is_stopping:
                    return
                await asyncio.sleep(_STORE_SECONDS)
            else:
                return

    async def _change(self, task_id: str, change: Callable[[Task], Task | None]) -> Task | None:
        """Apply `change` to an unfinished task. Return None if the task is finished or unknown, or was not changed."""
        for _ in range(_ATTEMPTS):
            task = await self.store.get(task_id)
            if task is None or task.is_finished:
                # Release the task here too, because the response to an earlier write may have been lost.
                self.limiter.release(task_id)
                return None
            wanted = change(task)
            if wanted is None:
                return None
            # The update must not be earlier than the creation, even if the clock was set back.
            changed = replace(wanted, version=task.version + 1, updated=max(self.clock(), task.created))
            if await self.store.replace(changed):
                if changed.is_finished:
                    self.limiter.release(task_id)
                self._events.publish(TaskChanged(changed))
                return changed
        log.error("task not updated: too many concurrent changes", task=task_id)
        return None

    def _message_changed(self, run: TaskRun) -> None:
        task = replace(run.task, status=TaskStatus.WORKING, message=run.message, updated=run.message_at)
        if run.task.id in self._running:
            self._events.publish(TaskProgressed(task))

    def _begin_sweeps(self) -> None:
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep(), name="tasks: expiry")

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            if not any(self.store.counts.values()):
                continue
            with suppress(StoreUnavailableError):
                while expired := await self.store.expire(self.clock()):
                    for task_id in expired:
                        self._stop(task_id)
                        self.limiter.release(task_id)


class TaskLimiter:
    """Enforces `limits.tasks`. A task is counted before it is stored, so concurrent requests cannot exceed a limit."""

    def __init__(self) -> None:
        self.refused = 0
        self._counted_for: Final[dict[str, str]] = {}
        self._callers: Final[Counter[str]] = Counter()

    @property
    def unfinished(self) -> int:
        return len(self._counted_for)

    @property
    def unfinished_by_caller(self) -> Mapping[str, int]:
        return self._callers

    def reserve(self, caller: str, bounds: TaskLimits) -> str:
        """Count a new task of a caller and return the task's id. Raise OverLimitError if a limit is reached."""
        # By default, one caller can use half of the total.
        most = bounds.per_caller if bounds.per_caller is not None else max(1, bounds.total // 2)
        if self._callers[caller] >= most:
            self._refuse(f"A caller can have at most {most} unfinished tasks", limit="limits.tasks.per_caller")
        if self.unfinished >= bounds.total:
            self._refuse(f"The server allows at most {bounds.total} unfinished tasks", limit="limits.tasks.total")
        task_id = secrets.token_hex(_ID_BYTES)
        self.count(task_id, caller)
        return task_id

    def count(self, task_id: str, caller: str) -> None:
        """Count an existing task, regardless of the limit. A task that is already counted is not counted again."""
        if task_id in self._counted_for:
            return
        self._counted_for[task_id] = caller
        self._callers[caller] += 1

    def release(self, task_id: str) -> None:
        caller = self._counted_for.pop(task_id, None)
        if caller is not None:
            self._callers[caller] -= 1
            if not self._callers[caller]:
                del self._callers[caller]

    def _refuse(self, why: str, *, limit: str) -> NoReturn:
        self.refused += 1
        raise OverLimitError(f"{why} ({limit})", retry_after=_RETRY_AFTER_SECONDS, limit=limit)
