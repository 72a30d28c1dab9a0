"""Suspends runs while input requests are open: neither their deadlines nor their permits are used up."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from gateway.deadline import Deadline
from gateway.limits.concurrency import ConcurrencyPermit
from gateway.protocol.call.input_requests.requester import Suspension


class RunSuspension:
    """Stops a run's clock and lends its permit to others, as long as at least one input request is open."""

    __slots__ = ("_deadline", "_open", "_permit", "_returning", "_since", "_waited")

    def __init__(
        self, deadline: Deadline, permit: ConcurrencyPermit, *, waited: Callable[[float], None] = lambda _: None
    ) -> None:
        """Suspend nothing yet; `waited` is told when a wait began, on the event loop's clock, once it is over."""
        self._waited = waited
        self._since = 0.0
        """When the first of the open requests was sent, on the event loop's clock."""
        self._deadline = deadline
        self._permit = permit
        self._open = 0
        self._returning = asyncio.Lock()

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[None]:
        if not self._open:
            self._since = asyncio.get_running_loop().time()
        self._open += 1
        self._deadline.pause()
        self._permit.suspend()
        try:
            yield
        # The call is about to end: it takes its place at once, and does not queue for it first.
        except asyncio.CancelledError:
            self._open -= 1
            if not self._open:
                self._waited(self._since)
                self._permit.force_resume()
                self._deadline.resume()
            raise
        except BaseException:
            await self._end_one()
            raise
        await self._end_one()

    async def _end_one(self) -> None:
        """Note that a request was answered or withdrawn; go on unless another is open, or is sent meanwhile."""
        self._open -= 1
        if not self._open:
            self._waited(self._since)
        try:
            # One at a time: two answers that come together must not take the place twice.
            async with self._returning:
                if not self._open:
                    await self._permit.resume()
        finally:
            if self._open:
                self._permit.suspend()
            else:
                self._permit.force_resume()  # where the wait was cancelled
                self._deadline.resume()


@asynccontextmanager
async def both(outer: Suspension, inner: Suspension) -> AsyncIterator[None]:
    """Suspend a run within a run together with that one."""
    async with outer(), inner():
        yield
