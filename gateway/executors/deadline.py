"""The deadline of a call, which is moved back while an input request to the caller's client is open; its error."""

import asyncio
from types import TracebackType
from typing import Final

import msgspec

from gateway.errors import ExecutionError

_RESOLUTION: Final = 0.001
"""Seconds by which a timer may be early."""


class DeadlineExceededError(ExecutionError):
    """A call, or a part of it, took longer than it may. The same words for every backend and every place."""

    def __init__(self, what: str, seconds: float, *, setting: str = "") -> None:
        """`what` took longer than `seconds`, which `setting` says where it is not the call's `timeout`."""
        super().__init__(f"{what} timed out after {max(seconds, 0.0):.1f} s" + (f" ({setting})" if setting else ""))
        self.what = what


class Deadline(msgspec.Struct, eq=False):
    """The point in time by which a call must be answered, in seconds on the running event loop's clock."""

    at: float
    """As things stand: a pause that is not over yet is not counted."""
    seconds: float
    """How long the call may take until then, with what it waits before its work begins, and without pauses."""
    _paused_at: float | None = None
    # msgspec makes a new one for each instance.
    _limits: set["Limit"] = set()

    def limit(self, what: str, seconds: float | None = None) -> "Limit":
        """Let the body, which does `what`, run until the deadline, and no longer than `seconds`.

        Raises:
            DeadlineExceededError: it took longer; pauses do not count.
        """
        if seconds is not None and (end := self.now() + seconds) < self.at:
            return Limit(what, at=end, seconds=seconds, deadline=self)
        return Limit(what, at=self.at, seconds=self.seconds, deadline=self)

    def exceeded(self, error: DeadlineExceededError) -> DeadlineExceededError:
        """Return what to raise for a part of the call that took too long: if the whole did, an error that says so."""
        # Where both run out together it is the whole call that took too long.
        return error if self.at - self.now() > _RESOLUTION else DeadlineExceededError(error.what, self.seconds)

    def begin(self, limit: "Limit") -> None:
        """Start a limit that is moved back with this deadline, until `end_of` is called with it."""
        self._limits.add(limit)
        if self._paused_at is None:  # else `resume` starts it
            limit.start()

    def end_of(self, limit: "Limit") -> None:
        self._limits.discard(limit)

    def pause(self) -> None:
        """Stop counting until `resume`."""
        if self._paused_at is not None:
            return
        self._paused_at = asyncio.get_running_loop().time()
        for limit in self._limits:
            limit.stop()

    def resume(self) -> None:
        if self._paused_at is None:
            return
        paused = asyncio.get_running_loop().time() - self._paused_at
        self._paused_at = None
        self.at += paused
        for limit in self._limits:
            limit.at += paused
            limit.start()

    def now(self) -> float:
        """The current time; during a pause, the time at which that began."""
        return asyncio.get_running_loop().time() if self._paused_at is None else self._paused_at


class Limit:
    """A body of work that must be done by a point in time: `async with Limit(…)`.

    It does what `asyncio.timeout_at` does, in half of the instructions, which were a twentieth of an HTTP tool's call.
    """

    __slots__ = ("_cancelling", "_deadline", "_has_run_out", "_seconds", "_task", "_timer", "_what", "at")

    def __init__(self, what: str, *, at: float, seconds: float, deadline: Deadline | None = None) -> None:
        """Start nothing yet; `deadline` moves it back, `what` and `seconds` stand in the error."""
        self.at = at
        self._what = what
        self._seconds = seconds
        self._deadline = deadline
        self._has_run_out = False
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None

    async def __aenter__(self) -> None:
        self._task = task = asyncio.current_task()
        assert task is not None  # noqa: S101 - coroutines run in tasks
        self._cancelling = task.cancelling()
        if self._deadline is None:
            self.start()
        else:
            self._deadline.begin(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Raises: DeadlineExceededError: it took longer."""
        self.stop()
        if self._deadline is not None:
            self._deadline.end_of(self)
        # A body that somebody else has cancelled, too, stays cancelled; one that was done already is.
        if self._has_run_out and self._task is not None:
            is_cancelled_here = self._task.uncancel() <= self._cancelling
            if is_cancelled_here and isinstance(error, asyncio.CancelledError):
                raise DeadlineExceededError(self._what, self._seconds) from error

    def start(self) -> None:
        if not self._has_run_out:
            self._timer = asyncio.get_running_loop().call_at(self.at, self._run_out)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run_out(self) -> None:
        self._has_run_out, self._timer = True, None
        if self._task is not None:
            self._task.cancel()
