"""The deadline of a call, which is moved back while an input request to the caller's client is open."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec

from gateway.errors import DeadlineExceededError


class Deadline(msgspec.Struct, eq=False):
    """The point in time by which a call must be answered, in seconds on the running event loop's clock."""

    at: float
    """As things stand: a pause that is not over yet is not counted."""
    _paused_at: float | None = None
    _limits: dict[asyncio.Timeout, float] = {}

    @asynccontextmanager
    async def limit(self, what: str, seconds: float | None = None) -> AsyncIterator[None]:
        """Let the body, which does `what`, run until the deadline, and no longer than `seconds`.

        Raises:
            DeadlineExceededError: it took longer; pauses do not count.
        """
        began = self._now()
        end = self.at if seconds is None else min(self.at, began + seconds)
        timeout = asyncio.timeout_at(end if self._paused_at is None else None)
        try:
            async with timeout:
                self._limits[timeout] = end
                try:
                    yield
                finally:
                    del self._limits[timeout]
        except TimeoutError as error:
            if not timeout.expired():
                raise  # the body's own
            raise DeadlineExceededError(what, end - began) from error

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

    def _now(self) -> float:
        """The current time; during a pause, the time at which that began."""
        return asyncio.get_running_loop().time() if self._paused_at is None else self._paused_at


def _reschedule(timeout: asyncio.Timeout, when: float | None) -> None:
    with suppress(RuntimeError):  # it has just run out
        timeout.reschedule(when)
