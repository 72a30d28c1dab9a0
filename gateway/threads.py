"""A bounded pool of daemon threads for blocking functions.

With `asyncio.to_thread`, a function that does not return would prevent the exit of the process. In this pool, a thread
counts as stuck when its function passes the deadline, and does not prevent the exit.
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

T = TypeVar("T")

log: Final = structlog.get_logger(__name__)

MAX_ON_LOOP: Final = 2**19
"""The maximum number of bytes to process on the event loop: the work of a few hundredths of a second."""


class NoThreadFreeError(TimeoutError):
    """All threads were busy until the deadline, so the function was not run."""


class DaemonThreadPool:
    """Runs blocking functions for one event loop in up to `limit` reusable threads."""

    def __init__(self, limit: int) -> None:
        self._free = asyncio.Semaphore(limit)
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._idle = 0
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
        return len(self._jobs)

    @property
    def stuck(self) -> int:
        """The number of abandoned calls that still run: functions in threads, and tasks that ignore cancellation."""
        return sum(job.result.done() for job in self._jobs) + len(self._orphans)

    async def run(
        self,
        function: Callable[..., T],
        *args: Any,
        deadline: float,
        on_stuck: Callable[[asyncio.Task[None]], None] | None = None,
    ) -> T:
        """Run `function(*args)` in a thread with the caller's context variables, and return its result.

        If the function is still running when this call ends, `on_stuck` receives a task that waits for the function.

        Raises:
            NoThreadFreeError: No thread was free before `deadline` (time of the event loop).
            TimeoutError: The function did not return before the deadline.
            ExecutionError: The system cannot start a thread.
        """
        try:
            async with asyncio.timeout_at(deadline):
                await self._free.acquire()
        except TimeoutError:
            raise NoThreadFreeError from None
        # Do not await before the job has started: a cancellation would lose the permit.
        job = self._start(function, args)
        try:
            async with asyncio.timeout_at(deadline):
                await job.result
        finally:
            # Report the thread after a cancellation too, because the function continues.
            if job in self._jobs and on_stuck is not None:
                on_stuck(self._watches.begin(_wait_for(job.ended), name="stuck plugin"))
        returned: T = job.unwrap()
        return returned

    def track_orphan(self, task: asyncio.Task[Any]) -> asyncio.Task[None]:
        """Count a task that continues after cancellation as stuck. Return a task that waits for `task`."""
        self._orphans.add(task)
        task.add_done_callback(self._orphans.discard)
        return self._watches.begin(_wait_for(task), name="stuck plugin")

    async def stop(self) -> None:
        """End the idle threads and abandon the stuck threads."""
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
            # Use a daemon thread, because the interpreter joins all other threads before it exits.
            thread = threading.Thread(target=_work, args=(self._queue, self._finish), name="plugin", daemon=True)
            try:
                thread.start()
            except (RuntimeError, MemoryError) as error:  # RLIMIT_NPROC, TasksMax, or no memory for a stack
                self._free.release()  # `_finish` is not called
                raise ExecutionError(f"cannot start a thread: {error}") from error
        self._queue.put(job)
        self._jobs.add(job)
        return job

    def _finish(self, job: "_Job") -> None:
        # Runs on the event loop.
        self._jobs.discard(job)
        if not job.result.done():
            job.result.set_result(None)
        job.ended.set_result(None)
        if self._stopped:
            self._queue.put(None)
        else:
            self._idle += 1
        self._free.release()


def _work(jobs: "SimpleQueue[_Job | None]", finish: "Callable[[_Job], None]") -> None:
    # Runs in a thread.
    while (job := jobs.get()) is not None:
        job.run()
        try:
            job.loop.call_soon_threadsafe(finish, job)
        except RuntimeError:  # the loop is closed
            return
        del job  # free the call's values while idle


class Permit(Protocol):
    """Permission for a call to run, which counts against a limit of concurrent calls."""

    def hold_until_done(self, task: asyncio.Task[None]) -> None:
        """Keep the permit until the task is done, even if the response is sent earlier."""

    def suspend(self) -> None:
        """Free the permit for other calls while this call waits for the user's answer."""

    def force_resume(self) -> None:
        """Take the permit back at once, even if the calls then exceed the limit."""


class TimedCall(Protocol):
    """A call with a deadline and a permit."""

    @property
    def deadline(self) -> Deadline: ...
    @property
    def permit(self) -> Permit: ...


async def run_in_thread(function: Callable[[], T], *, what: str, call: TimedCall, threads: DaemonThreadPool) -> T:
    """Run a function in a thread. `what` describes the function in errors.

    Raises:
        DeadlineExceededError: The function did not return before the deadline of `call`.
        ExecutionError: No thread was free before the deadline.
    """
    try:
        return await threads.run(function, deadline=call.deadline.at, on_stuck=call.permit.hold_until_done)
    except NoThreadFreeError as error:
        raise ExecutionError(
            f"{what} did not start, because all threads for large outputs and files were busy until the deadline"
        ) from error
    except TimeoutError as error:
        raise DeadlineExceededError(what, call.deadline.seconds) from error


async def _wait_for(ending: "asyncio.Future[Any]") -> None:
    await asyncio.wait([ending])


class _Job:
    __slots__ = ("_args", "_context", "_error", "_function", "_value", "ended", "loop", "result")

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.result: asyncio.Future[None] = loop.create_future()
        """Done when the function returns or the caller stops waiting."""
        self.ended: asyncio.Future[None] = loop.create_future()
        self._function = function
        self._args = args
        # Run the function in the caller's context, for log lines and spans.
        self._context = contextvars.copy_context()
        self._value: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        # Runs in a thread.
        try:
            self._value = self._context.run(self._function, *self._args)
        except BaseException as error:  # noqa: BLE001 - Boundary: the caller gets any exception
            self._error = error

    def unwrap(self) -> Any:
        """Return the result of the function, or raise its error."""
        error, self._error = self._error, None
        try:
            match error:
                case None:
                    return self._value
                case asyncio.CancelledError():
                    # CancelledError would look like a cancellation of the caller.
                    raise RuntimeError("the function raised CancelledError") from error
                case _:
                    raise error
        finally:
            del error  # its traceback references this frame
