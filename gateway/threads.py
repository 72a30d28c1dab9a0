"""A pool of daemon threads for blocking functions, of bounded size; and the blocking work of calls that is done there.

Why not `asyncio.to_thread`: its threads hold up the exit of the process until a stuck function returns, and it queues
without end. Here a call is answered at its deadline whatever the function does; its thread counts as stuck until the
function returns, and exit does not wait for it.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

import structlog

from gateway.background_tasks import BackgroundTasks
from gateway.deadline import Deadline, DeadlineExceededError
from gateway.errors import ExecutionError
from gateway.permit import Permit

T = TypeVar("T")

log: Final = structlog.get_logger()

MAX_ON_LOOP: Final = 2**19
"""Bytes, whose shaping takes a few hundredths of a second at the most."""


class NoThreadFreeError(TimeoutError):
    """All threads were busy until the deadline; the function was not run."""


class DaemonThreadPool:
    """Runs functions in threads, `limit` at once, which it keeps. Belongs to the event loop that it is used on."""

    def __init__(self, limit: int) -> None:
        self._free = asyncio.Semaphore(limit)
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        """Jobs for the threads; None ends the one that takes it."""
        self._idle = 0
        """Threads for which there is no job in the queue."""
        self._jobs: set[_Job] = set()
        self._orphans: set[asyncio.Task[Any]] = set()
        self._watches = BackgroundTasks()
        self._stopped = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def busy(self) -> int:
        """Threads that run a function, the stuck ones included."""
        return len(self._jobs)

    @property
    def stuck(self) -> int:
        """Threads whose caller has been answered, and tasks that went on after they were cancelled."""
        return sum(job.result.done() for job in self._jobs) + len(self._orphans)

    async def run(
        self,
        function: Callable[..., T],
        *args: Any,
        deadline: float,
        on_stuck: Callable[[asyncio.Task[None]], None] | None = None,
    ) -> T:
        """Run `function(*args)` in a thread, in the caller's context variables, and return what it returns.

        Where this ends before the function does, `on_stuck` is given a task that ends with it.

        Raises:
            NoThreadFreeError: no thread came free before `deadline` (on the loop's clock).
            TimeoutError: the function had not returned at the deadline.
            ExecutionError: the system lets no thread be started.
        """
        try:
            async with asyncio.timeout_at(deadline):
                await self._free.acquire()
        except TimeoutError:
            raise NoThreadFreeError from None
        # Nothing is waited for since the permit was acquired: a cancellation in between would lose it.
        job = self._start(function, args)
        try:
            async with asyncio.timeout_at(deadline):
                await job.result
        finally:
            # Also after a cancellation: the thread goes on, and the permit of its call with it.
            if job in self._jobs and on_stuck is not None:
                on_stuck(self._watches.begin(_wait_for(job.ended), name="stuck plugin"))
        returned: T = job.unwrap()
        return returned

    def track_orphan(self, task: asyncio.Task[Any]) -> asyncio.Task[None]:
        """Own a task that went on after it was cancelled, until it ends; what is returned ends with it."""
        self._orphans.add(task)
        task.add_done_callback(self._orphans.discard)
        return self._watches.begin(_wait_for(task), name="stuck plugin")

    async def stop(self) -> None:
        """Let the threads end that have nothing to do; stuck ones are left behind."""
        self._stopped = True
        for _ in range(self._idle):
            self._queue.put(None)
        self._idle = 0
        await self._watches.cancel()
        if self.stuck:
            log.warning("threads left behind", stuck=self.stuck)

    def _start(self, function: Callable[..., T], args: tuple[Any, ...]) -> "_Job":
        job = _Job(function, args, asyncio.get_running_loop())
        if self._idle:
            self._idle -= 1
        else:
            # A daemon thread: one that never returns must not hold up the end of the process, which joins all others.
            thread = threading.Thread(target=_work, args=(self._queue, self._finish), name="plugin", daemon=True)
            try:
                thread.start()
            except (RuntimeError, MemoryError) as error:  # RLIMIT_NPROC, TasksMax, or no memory for its stack
                self._free.release()  # no `_finish` will
                raise ExecutionError(f"no thread can be started here: {error}") from error
        self._queue.put(job)
        self._jobs.add(job)
        return job

    def _finish(self, job: "_Job") -> None:
        """On the loop: the function has returned."""
        self._jobs.discard(job)
        # Done already if it was cancelled with its waiter, at the deadline.
        if not job.result.done():
            job.result.set_result(None)
        job.ended.set_result(None)
        if self._stopped:
            self._queue.put(None)
        else:
            self._idle += 1
        self._free.release()


def _work(jobs: "SimpleQueue[_Job | None]", finish: "Callable[[_Job], None]") -> None:
    """Run one job after another, in a thread."""
    while (job := jobs.get()) is not None:
        job.run()
        try:
            job.loop.call_soon_threadsafe(finish, job)
        except RuntimeError:  # the loop is closed: no result of this thread is wanted any more
            return
        del job  # an idle thread must not keep a call's values alive


class TimedCall(Protocol):
    """A call with a deadline and a permit."""

    @property
    def deadline(self) -> Deadline: ...
    @property
    def permit(self) -> Permit: ...


async def run_in_thread(function: Callable[[], T], *, what: str, call: TimedCall, threads: DaemonThreadPool) -> T:
    """Return what `function`, which does `what`, returns in a thread.

    Raises:
        DeadlineExceededError: it had not returned at the deadline of `call`.
        ExecutionError: no thread came free by then.
    """
    try:
        return await threads.run(function, deadline=call.deadline.at, on_stuck=call.permit.hold_until_done)
    except NoThreadFreeError as error:
        raise ExecutionError(
            f"{what} did not begin: all threads for large outputs and files were busy until the deadline"
        ) from error
    except TimeoutError as error:
        raise DeadlineExceededError(what, call.deadline.seconds) from error


async def shaped(shape: Callable[[], T], *, size: int, call: TimedCall, threads: DaemonThreadPool) -> T:
    """Return what `shape` makes of an outcome of `size` bytes: on the event loop if that is little, else in a thread.

    Raises:
        ExecutionError: it was not done at the deadline of `call`, or `shape` raised it.
    """
    if size <= MAX_ON_LOOP:
        return shape()
    return await run_in_thread(shape, what="Shaping the large output", call=call, threads=threads)


async def _wait_for(ending: "asyncio.Future[Any]") -> None:
    await asyncio.wait([ending])


class _Job:
    """One call of a function."""

    __slots__ = ("_args", "_context", "_error", "_function", "_value", "ended", "loop", "result")

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.result: asyncio.Future[None] = loop.create_future()
        """Done when the caller has been answered, be it by its deadline."""
        self.ended: asyncio.Future[None] = loop.create_future()
        self._function = function
        self._args = args
        # The caller's: by it, log lines and spans of the function belong to their call.
        self._context = contextvars.copy_context()
        self._value: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Call the function, in the thread, and keep what becomes of that."""
        try:
            self._value = self._context.run(self._function, *self._args)
        except BaseException as error:  # noqa: BLE001 - Boundary: whatever a function raises is its caller's to judge
            self._error = error

    def unwrap(self) -> Any:
        """Return the function's value, or raise its error.

        A function's own CancelledError must not be taken for the cancellation of its caller.
        """
        error, self._error = self._error, None
        try:
            match error:
                case None:
                    return self._value
                case asyncio.CancelledError():
                    raise RuntimeError("the function raised CancelledError") from error
                case _:
                    raise error
        finally:
            del error  # its traceback leads back to this frame
