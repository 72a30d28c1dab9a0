"""The interface for input requests, which each era implements."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal, Protocol, TypeVar

from gateway.deadline import Deadline
from gateway.json_types import JsonObject
from gateway.limits.concurrency import ConcurrencyPermit
from gateway.protocol.call.input_requests.requests import InputRequest

T = TypeVar("T")

Suspension = Callable[[], AbstractAsyncContextManager[None]]
"""Stops the clock of a run and suspends its permit."""

Where = Literal["before", "inside"]
"""Whether to ask before the call becomes a task, or inside the task."""


class KeptResults(Protocol):
    async def once(self, key: str, function: Callable[[], Awaitable[T]]) -> T:
        pass


class InputRequester(Protocol):
    async def request(
        self,
        questions: Mapping[str, InputRequest],
        *,
        pause: Suspension,
        proven: bool = False,
        where: Where | None = None,
    ) -> Mapping[str, JsonObject]:
        """Return the checked responses by key.

        Args:
            questions: input requests by key.
            pause: suspends the run.
            proven: require proof that this server sent the request for this call, and accept a response only once.
            where: before or inside a task. None for the configured default.

        Raises:
            MissingCapabilityError: the client has not declared the capability.
            MalformedAnswerError: a response does not match its request (modern).
            ExecutionError: the client refused, timed out or sent an invalid response (legacy), or a limit was exceeded.
            AwaitingInput: the client must respond first (modern).
        """

    @property
    def budget(self) -> KeptResults:
        """The budget of the call, with the results of `once`."""

    async def close(self, error: BaseException | None) -> None:
        """End with the run. Raise AwaitingInput if the client must respond first (modern)."""


class RunSuspension:
    __slots__ = ("_deadline", "_open", "_permit", "_returning", "_since", "_waited")

    def __init__(
        self, deadline: Deadline, permit: ConcurrencyPermit, *, waited: Callable[[float], None] = lambda _: None
    ) -> None:
        """`waited` is called after each wait with its start, on the event loop's clock."""
        self._waited = waited
        self._since = 0.0
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
        # The call is about to end, so do not wait for the permit.
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
        self._open -= 1
        if not self._open:
            self._waited(self._since)
        try:
            # Concurrent responses must not resume the permit twice.
            async with self._returning:
                if not self._open:
                    await self._permit.resume()
        finally:
            if self._open:
                self._permit.suspend()
            else:
                self._permit.force_resume()  # if the wait was cancelled
                self._deadline.resume()


@asynccontextmanager
async def both(outer: Suspension, inner: Suspension) -> AsyncIterator[None]:
    async with outer(), inner():
        yield
