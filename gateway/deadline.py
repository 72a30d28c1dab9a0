"""The deadline of a call, which is moved back while an input request to the caller's client is open; its error."""

import asyncio
from contextlib import suppress
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
    _limits: dict[asyncio.Timeout, float] = {}

    def limit(self, what: str, seconds: float | None = None) -> "Limit":
        """Let the body, which does `what`, run until the deadline, and no longer than `seconds`.

        Raises:
            DeadlineExceededError: it took longer; pauses do not count.
        """
        return Limit(self, what, seconds)

    def exceeded(self, error: DeadlineExceededError) -> DeadlineExceededError:
        """Return what to raise for a part of the call that took too long: if the whole did, an error that says so."""
        # Where both run out together it is the whole call that took too long.
        return error if self.at - self.now() > _RESOLUTION else DeadlineExceededError(error.what, self.seconds)

    def begin(self, end: float) -> asyncio.Timeout:
        """Make a timeout that is moved back with this deadline, until `end_of` is called with it."""
        # None during a pause: `resume` sets it.
        timeout = asyncio.timeout_at(end if self._paused_at is None else None)
        self._limits[timeout] = end
        return timeout

    def end_of(self, timeout: asyncio.Timeout) -> None:
        del self._limits[timeout]

    def pause(self) -> None:
        """Stop counting until `resume`."""
        if self._paused_at is not None:
            return
        self._paused_at = asyncio.get_running_loop().time()
        for timeout in self._limits:
            _reschedule(timeout, None)

    def resume(self) -> None:
        if self._paused_at is None:
            return
        paused = asyncio.get_running_loop().time() - self._paused_at
        self._paused_at = None
        self.at += paused
        for timeout in self._limits:
            self._limits[timeout] += paused
            _reschedule(timeout, self._limits[timeout])

    def now(self) -> float:
        """The current time; during a pause, the time at which that began."""
        return asyncio.get_running_loop().time() if self._paused_at is None else self._paused_at


class Limit:
    """A body of work that must be done by a deadline: `async with deadline.limit(…)`."""

    __slots__ = ("_allowed", "_deadline", "_seconds", "_timeout", "_what")

    def __init__(self, deadline: Deadline, what: str, seconds: float | None) -> None:
        self._deadline = deadline
        self._what = what
        self._seconds = seconds

    async def __aenter__(self) -> None:
        deadline = self._deadline
        end, self._allowed = deadline.at, deadline.seconds
        if self._seconds is not None and (own_end := deadline.now() + self._seconds) < end:
            end, self._allowed = own_end, self._seconds
        self._timeout = deadline.begin(end)
        await self._timeout.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # First, for a timeout that is over cannot be moved any more (RuntimeError).
        self._deadline.end_of(self._timeout)
        try:
            await self._timeout.__aexit__(kind, error, traceback)
        except TimeoutError as expiry:
            raise DeadlineExceededError(self._what, self._allowed) from expiry


def _reschedule(timeout: asyncio.Timeout, when: float | None) -> None:
    with suppress(RuntimeError):  # it has just run out
        timeout.reschedule(when)
