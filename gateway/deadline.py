"""The deadline of a call, which pauses while the client is asked for input."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import msgspec

from gateway.errors import ExecutionError

_RESOLUTION: Final = 0.001  # seconds by which a timer can fire early


class DeadlineExceededError(ExecutionError):
    """A call or a part of a call timed out."""

    def __init__(self, what: str, seconds: float, *, setting: str = "") -> None:
        """Create the error. `setting` is the configuration key of the time limit, unless that is `timeout`."""
        super().__init__(f"{what} timed out after {max(seconds, 0.0):.1f} s" + (f" ({setting})" if setting else ""))
        self.what = what


class Deadline(msgspec.Struct, eq=False):
    """The deadline of a call, as a time of the event loop in seconds."""

    at: float
    """The time when the call times out. `resume` adds the length of the pause."""
    seconds: float
    """The time limit of the call. Pauses do not count."""
    _paused_at: float | None = None
    # msgspec copies the default dictionary for each instance.
    _limits: dict[asyncio.Timeout, float] = {}

    @asynccontextmanager
    async def limit(self, what: str, seconds: float | None = None) -> AsyncIterator[None]:
        """Cancel the body at the deadline or after `seconds`, whichever is first. `what` describes the body in errors.

        Raises:
            DeadlineExceededError: The body timed out. Pauses do not count.
        """
        end, allowed = self.at, self.seconds
        if seconds is not None and (own_end := self.now() + seconds) < end:
            end, allowed = own_end, seconds
        timeout = asyncio.timeout_at(end if self._paused_at is None else None)
        self._limits[timeout] = end
        try:
            async with timeout:
                try:
                    yield
                finally:
                    # Forget the timeout while it is active: rescheduling a finished timeout raises RuntimeError.
                    del self._limits[timeout]
        except TimeoutError as expiry:
            if not timeout.expired():
                raise
            raise DeadlineExceededError(what, allowed) from expiry

    def within(self, seconds: float | None) -> float:
        """Return the event loop's time in `seconds` from now, or the deadline of the call if that is earlier."""
        return self.at if seconds is None else min(self.at, asyncio.get_running_loop().time() + seconds)

    def exceeded(self, error: DeadlineExceededError) -> DeadlineExceededError:
        """Return an error that names the time limit of the call if the whole call has timed out, otherwise `error`."""
        return error if self.at - self.now() > _RESOLUTION else DeadlineExceededError(error.what, self.seconds)

    def pause(self) -> None:
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
        """Return the current time. During a pause, return the time when the pause began."""
        return asyncio.get_running_loop().time() if self._paused_at is None else self._paused_at


def _reschedule(timeout: asyncio.Timeout, when: float | None) -> None:
    with suppress(RuntimeError):  # already expired
        timeout.reschedule(when)
