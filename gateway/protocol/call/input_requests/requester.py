"""The interface of input requests, which each era implements, and the suspension of runs."""

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
"""Whether a call that may become a task asks before or inside the task."""


class KeptResults(Protocol):
    async def once(self, key: str, function: Callable[[], Awaitable[T]]) -> T:
        """Return the result of the first run of `function`; see `gateway.plugin.Context.once`."""


class InputRequester(Protocol):
    """Sends the input requests of one run."""

    async def request(
        self,
        questions: Mapping[str, InputRequest],
        *,
        pause: Suspension,
        proven: bool = False,
        where: Where | None = None,
    ) -> Mapping[str, JsonObject]:
        """Return the responses by key, each checked against its request.

        Args:
            questions: the input requests by key.
            pause: suspends the run.
            proven: accept a response only once, and only with proof that this server sent the request for this call.
            where: for a call that may become a task; None for the setting in the file.

        Raises:
            MissingCapabilityError: the client has not declared the capability.
            MalformedAnswerError: a response does not match its request (modern).
            ExecutionError: the client refused, did not respond in time, or sent an invalid response (legacy). Or the
                call has sent too many requests, or two with the same key.
            AwaitingInput: the client must respond first (modern).
        """

    @property
    def budget(self) -> KeptResults:
        """The budget of the call, with the results of `once`."""

    async def close(self, error: BaseException | None) -> None:
        """End together with the run, which may have ended with an error.

        Raises:
            AwaitingInput: the client must respond first (modern).
        """


class RunSuspension:
    """Stops the clock of a run and suspends its permit while an input request is open."""

    __slots__ = ("_deadline", "_open", "_permit", "_returning", "_since", "_waited")

    def __init__(
        self, deadline: Deadline, permit: ConcurrencyPermit, *, waited: Callable[[float], None] = lambda _: None
    ) -> None:
        """Suspend nothing yet; `waited` is called after each wait with its start on the event loop's clock."""
        self._waited = waited
        self._since = 0.0
        """The time of the first open request, on the event loop's clock."""
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
        # The call is about to end, so it does not wait for the permit.
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
        """Note the end of a request, and resume unless another request is open."""
        self._open -= 1
        if not self._open:
            self._waited(self._since)
        try:
            # Two responses at once must not resume the permit twice.
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
    """Suspend an inner run together with its outer run."""
    async with outer(), inner():
        yield
