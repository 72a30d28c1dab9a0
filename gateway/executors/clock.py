"""How long a call may still take. Stands still while a question to the caller is open."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Clock:
    """One call's time, in seconds on the running event loop's clock."""

    __slots__ = ("_limits", "_stopped_at", "deadline")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        """When the call must be answered, as things stand."""
        self._stopped_at: float | None = None
        self._limits: dict[asyncio.Timeout, float] = {}

    @asynccontextmanager
    async def limit(self, seconds: float | None = None) -> AsyncIterator[None]:
        """Let the body run until the deadline, and no longer than `seconds`.

        Raises:
            TimeoutError: it took longer; time in which the clock stood still does not count.
        """
        own = math.inf if seconds is None else self._now() + seconds
        end = min(self.deadline, own)
        async with asyncio.timeout_at(end if self._stopped_at is None else None) as timeout:
            self._limits[timeout] = end
            try:
                yield
            finally:
                del self._limits[timeout]

    def stop(self) -> None:
        """Stand still until `go_on`."""
        if self._stopped_at is not None:
            return
        self._stopped_at = asyncio.get_running_loop().time()
        for timeout in self._limits:
            _reschedule(timeout, None)

    def go_on(self) -> None:
        if self._stopped_at is None:
            return
        stood = asyncio.get_running_loop().time() - self._stopped_at
        self._stopped_at = None
        self.deadline += stood
        for timeout in self._limits:
            self._limits[timeout] += stood
            _reschedule(timeout, self._limits[timeout])

    def _now(self) -> float:
        """What this clock shows."""
        return asyncio.get_running_loop().time() if self._stopped_at is None else self._stopped_at


def _reschedule(timeout: asyncio.Timeout, when: float | None) -> None:
    with suppress(RuntimeError):  # it has just run out
        timeout.reschedule(when)
