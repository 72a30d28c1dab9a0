"""Runs tasks: begins their work, writes down how it ends, stops it, and begins again what a dead process left.

Only work that runs costs more than its record: a task that waits for input holds no thread, process or permit, and
nothing here but an entry by which it is counted.
"""

import asyncio
import math
import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Final

import msgspec
import structlog
from msgspec.structs import replace

from gateway.background_tasks import BackgroundTasks
from gateway.errors import StoreAwayError
from gateway.events import Events
from gateway.json_types import Json
from gateway.tasks.limiter import TaskLimiter
from gateway.tasks.store import NotStoredError, TaskStore
from gateway.tasks.task import STOPPED, Ending, Task, TaskRun, TaskStatus, ended, failed, left_behind

log: Final = structlog.get_logger(__name__)

_SWEEP_SECONDS: Final = 60.0
"""The longest pause between two looks for tasks whose time is over."""
_STORE_SECONDS: Final = 1.0
"""Pause between attempts to write an ending while the store is away."""
_ATTEMPTS: Final = 8
"""How often a change is tried again that met another one."""


Work = Callable[[TaskRun], Coroutine[Json, Json, Ending]]
"""Runs the tool of a task again from its start."""


class TaskChanged(msgspec.Struct, frozen=True):
    """Event: a task was made, waits for input, goes on, or has ended."""

    task: Task


class TaskProgressed(msgspec.Struct, frozen=True):
    """Event: the work of a task has reported progress."""

    task: Task


class TaskCancelled(msgspec.Struct, frozen=True):
    """Event: a task was cancelled."""

    task: Task
    """As it was before, with all that it had remembered."""


class TaskRunner:
    """The tasks of this process."""

    def __init__(self, store: TaskStore, *, work: Work, events: Events, clock: Callable[[], float] = time.time) -> None:
        """Run nothing yet."""
        self._events: Final = events
        self.store: Final = store
        self.clock: Final = clock
        self.limiter: Final = TaskLimiter()
        self.id: Final = store.process or secrets.token_hex(8)
        """The name of this process in the records of what it runs."""
        self._work: Final = work
        self._running: Final[dict[str, tuple[TaskRun, asyncio.Task[Ending]]]] = {}
        self._left: Sequence[Task] = ()
        self._abandoned: Final[set[asyncio.Task[Ending]]] = set()
        self._writing: Final = BackgroundTasks()
        self._sweeper: asyncio.Task[None] | None = None
        self._sweep_at = 0.0
        self._expiry_moved: Final = asyncio.Event()
        self._is_stopping = False

    async def load(self) -> None:
        """Find what another process has left. To be awaited before clients are let in."""
        await self.store.open()
        self._left = await self.store.unfinished()
        for task in self._left:
            self.limiter.count(task.id, task.caller.counted_as)
            self._expect_expiry(task)

    async def recover(self) -> None:
        """Begin again what was left, or write down that it failed."""
        left, self._left = self._left, ()
        for task in left:
            if task.status is TaskStatus.WORKING:
                await self.adopt(task)

    async def close(self) -> None:
        """Stop all that runs."""
        await self.drain(0)
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def runs(self) -> Sequence[TaskRun]:
        """The runs of stored tasks in this process."""
        return [run for run, _ in self._running.values()]

    def is_running(self, task_id: str) -> bool:
        return task_id in self._running

    @property
    def problem(self) -> str:
        """The reason for which no task can be made now; empty if one can."""
        return "the server is stopping" if self._is_stopping else self.store.problem

    async def add(self, task: Task) -> None:
        """Write down a new task, whose id is reserved.

        Raises:
            NotStoredError: it cannot be written; there is no such task.
        """
        if self._is_stopping:
            raise NotStoredError(self.problem)
        await self.store.add(task)
        if task.is_finished:
            self.limiter.release(task.id)
        self._expect_expiry(task)
        self._tell(task)

    def lose(self, task_id: str, *, is_over: bool = True) -> None:
        """Stop the work of a task, which is another process's now, or nobody's; nothing is written."""
        self._stop(task_id)
        if is_over:
            self.limiter.release(task_id)

    async def discard(self, task_id: str) -> None:
        """Forget a task that nobody was told of."""
        self.limiter.release(task_id)
        await self.store.remove(task_id)

    def abandon(self, working: asyncio.Task[Ending]) -> None:
        """Stop work that no task is made of."""
        working.cancel()
        self._abandoned.add(working)
        working.add_done_callback(self._abandoned.discard)

    def run_of(self, task: Task, caller: object = None) -> TaskRun:
        return TaskRun(task, on_message=self._message_changed, caller=caller)

    def follow(self, run: TaskRun, working: asyncio.Task[Ending]) -> None:
        """Write down how the work of a stored task ends."""
        self._running[run.task.id] = run, working
        working.add_done_callback(lambda _: self._writing.begin(self._ended(run, working), name="task: write"))

    async def get(self, task_id: str) -> Task | None:
        """The task as it is now, with the newest message of its work."""
        task = await self.store.get(task_id)
        running = self._running.get(task_id)
        if task is None or running is None or task.status is not TaskStatus.WORKING:
            return task
        run = running[0]
        return task if run.message == task.message else replace(task, message=run.message, updated=run.message_at)

    async def newest(self, count: int) -> Sequence[Task]:
        return [await self.get(task.id) or task for task in await self.store.newest(count)]

    async def answer(self, task_id: str, take: Callable[[Task], Task | None], *, caller: object = None) -> Task | None:
        """Give answers to a task, which goes on once no question is open.

        Args:
            task_id: the task.
            take: the task with the answers, of which some may be left out; None to change nothing.
            caller: who sends them, and in whose name the work goes on: see `TaskRun.caller`.
        """

        def answered(task: Task) -> Task | None:
            wanted = take(task)
            if wanted is None or wanted.status is not TaskStatus.WORKING:
                return wanted
            # A process that is stopping takes the answer, and leaves the work to the next one.
            return replace(wanted, runner="" if self._is_stopping else self.id)

        changed = await self._change(task_id, answered)
        if changed is not None and changed.status is TaskStatus.WORKING and not self._is_stopping:
            self._start(changed, caller)
        return changed

    async def cancel(self, task_id: str, message: str = "") -> None:
        """Stop a task's work with all that it has started. One that has ended stays as it is."""
        before: list[Task] = []

        def cancelled(task: Task) -> Task:
            before[:] = [task]
            return replace(task, status=TaskStatus.CANCELLED, message=message, questions=b"", memory=b"")

        # Written first: another process would begin again what is stopped, by the old record.
        if await self._change(task_id, cancelled) is not None:
            self._stop(task_id)
            self._events.publish(TaskCancelled(*before))

    async def drain(self, seconds: float) -> None:
        """Give what runs this long to end; then hand it over to the next process, or let it fail."""
        self._is_stopping = True
        working = [working for _, working in self._running.values()]
        if working and seconds > 0:
            await asyncio.wait(working, timeout=seconds)
        # Handed over before it is stopped: work that ends meanwhile finds a record that is no longer its own.
        for run, each in list(self._running.values()):
            if not each.done():
                with suppress(StoreAwayError):  # its lease will end
                    await self._change(run.task.id, left_behind)
                self._stop(run.task.id)
        await asyncio.gather(*working, return_exceptions=True)
        await self._writing.wait()

    async def adopt(self, task: Task) -> None:
        """Begin again what another process has left, or write down that it failed."""
        if not task.runner:  # handed over: what that costs of its restarts was taken then
            changed = await self._change(task.id, lambda found: replace(found, runner=self.id))
        else:
            changed = await self._change(task.id, lambda found: replace(left_behind(found), runner=self.id))
        if changed is not None and changed.status is TaskStatus.WORKING:
            self._start(changed)

    def _start(self, task: Task, caller: object = None) -> None:
        # Another process may have made it, and counted it: that one may be dead.
        self.limiter.count(task.id, task.caller.counted_as)
        run = self.run_of(task, caller)
        self.follow(run, asyncio.create_task(self._work(run), name=f"task of {task.tool}"))

    def _stop(self, task_id: str) -> None:
        running = self._running.pop(task_id, None)
        if running is not None:
            running[1].cancel()

    async def _ended(self, run: TaskRun, working: asyncio.Task[Ending]) -> None:
        if self._running.get(run.task.id, (None,))[0] is not run:
            # Looked at, or asyncio would log an exception that nobody has retrieved.
            _ = working.cancelled() or working.exception()
            return  # it was stopped, and that is written down
        try:
            ending = working.result()
        except asyncio.CancelledError:
            ending = failed(STOPPED)
        except Exception:  # Boundary: our bug must not leave a task that never ends.
            log.exception("task failed", task=run.task.id, tool=run.task.tool)
            ending = failed("Internal error")
        await self._write_ending(run, ending)
        # Not before it is written: until then its lease is renewed. An answer may have begun another run of it since.
        if self._running.get(run.task.id, (None,))[0] is run:
            del self._running[run.task.id]

    async def _write_ending(self, run: TaskRun, ending: Ending) -> None:
        """Write how a run ended, as soon as the store can be used, unless the task is another process's by then."""
        while True:
            try:
                # By now the task may be another process's: what that one makes of it counts.
                await self._change(run.task.id, lambda task: ended(task, ending) if task.runner == self.id else None)
            except StoreAwayError:
                if self._is_stopping:
                    return
                await asyncio.sleep(_STORE_SECONDS)
            else:
                return

    async def _change(self, task_id: str, change: Callable[[Task], Task | None]) -> Task | None:
        """Change a task that has not ended, as it is now; None if it has, is unknown, or is not to be changed."""
        for _ in range(_ATTEMPTS):
            task = await self.store.get(task_id)
            if task is None or task.is_finished:
                # It may have been this process: a store may go away between a write and its answer.
                self.limiter.release(task_id)
                return None
            wanted = change(task)
            if wanted is None:
                return None
            # The clock may have been set back since the task was made.
            changed = replace(wanted, version=task.version + 1, updated=max(self.clock(), task.created))
            if await self.store.replace(changed):
                if changed.is_finished:
                    self.limiter.release(task_id)
                self._tell(changed)
                return changed
        log.error("a task could not be changed", task=task_id)
        return None

    def _message_changed(self, run: TaskRun) -> None:
        task = replace(run.task, status=TaskStatus.WORKING, message=run.message, updated=run.message_at)
        if run.task.id in self._running:
            self._events.publish(TaskProgressed(task))

    def _tell(self, task: Task) -> None:
        self._events.publish(TaskChanged(task))

    def _expect_expiry(self, task: Task) -> None:
        """Look for tasks whose time is over as soon as this one's is."""
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep(), name="tasks: expiry")
        elif task.expires < self._sweep_at:
            self._expiry_moved.set()

    async def _sweep(self) -> None:
        """Stop and forget tasks when their time is over."""
        while True:
            # Before the store is asked: a task that is added meanwhile may not be in its answer.
            self._expiry_moved.clear()
            self._sweep_at = math.inf
            try:
                due = await self.store.next_expiry()
            except StoreAwayError:
                due = None
            now = self.clock()
            self._sweep_at = min(now + _SWEEP_SECONDS, now + _SWEEP_SECONDS if due is None else max(due, now))
            try:
                async with asyncio.timeout(max(0.0, self._sweep_at - now)):
                    await self._expiry_moved.wait()
            except TimeoutError:
                pass
            with suppress(StoreAwayError):
                for task_id in await self.store.expire(self.clock()):
                    self._stop(task_id)
                    self.limiter.release(task_id)
