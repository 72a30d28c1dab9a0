"""Sends the input requests of one call. Each era has a subclass of `InputRequester`."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Literal, TypeVar

import orjson
from msgspec.structs import replace

from gateway import exact_json
from gateway.config.models.quantities import RateLimit
from gateway.config.models.server import SamplingLimits
from gateway.deadline import Deadline
from gateway.errors import ExecutionError
from gateway.json_types import Json, JsonObject
from gateway.limits.concurrency import ConcurrencyPermit
from gateway.plugin import ToolError
from gateway.protocol.call.call import Call
from gateway.wire.input_requests import SAMPLE, InputRequest, check_capabilities, for_revision

T = TypeVar("T")

Suspension = Callable[[], AbstractAsyncContextManager[None]]
"""Returns a context manager that pauses the run's deadline and releases the run's concurrency permit."""

Where = Literal["before", "inside"]
"""Whether to send an input request before the call becomes a task, or inside the task."""

_STRICT: Final = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS


class InputRequester(ABC):
    """Sends the input requests of one call. `limits.sampling` counts a retry of the call as a new call."""

    def __init__(self, call: Call) -> None:
        self.call: Final = call
        self._asked: dict[str, InputRequest] = {}
        self.answers: dict[str, JsonObject] = {}
        """The client's checked responses by key."""
        self.results: Final[dict[str, Json]] = {}
        """The results of `once` by key."""
        self.needs_proof = False

    async def request(
        self,
        questions: Mapping[str, InputRequest],
        *,
        pause: Suspension,
        proven: bool = False,
        where: Where | None = None,
    ) -> Mapping[str, JsonObject]:
        """Send the input requests that have no response yet, and return the checked responses by key.

        Args:
            questions: input requests by key.
            pause: a context manager that suspends the run during the wait.
            proven: require proof that this server sent the request for this call, and accept a response only once.
            where: before or inside a task. None means the configured default.

        Raises:
            MissingCapabilityError: the client has not declared the capability.
            MalformedAnswerError: a response does not match its request (modern).
            ExecutionError: the client refused, timed out or sent an invalid response (legacy), or a limit was exceeded.
            AwaitingInput: the client must respond first (modern).
        """
        self.needs_proof |= proven
        entered = self._register(questions)
        if new := {key: question for key, question in entered.items() if key not in self.answers}:
            await self._ask(new, pause, proven=proven, where=where)
        return {key: self.answers[key] for key in questions}

    @abstractmethod
    async def _ask(
        self, questions: Mapping[str, InputRequest], pause: Suspension, *, proven: bool, where: Where | None
    ) -> None:
        """Add the responses to `answers`, or raise an exception as described in `request`."""

    @abstractmethod
    async def close(self, error: BaseException | None) -> None:
        """Withdraw open input requests (legacy), or raise AwaitingInput to send them to the client (modern)."""

    def _register(self, questions: Mapping[str, InputRequest]) -> dict[str, InputRequest]:
        entered = {key: self._permitted(question) for key, question in questions.items()}
        for key, question in entered.items():
            # basic/patterns/mrtr: only the key relates a response to its request.
            if self._asked.get(key, question) != question:
                raise ToolError(f"The key {key!r} is already used for another input request of this call")
        asked, most = {**self._asked, **entered}, self._limits.per_call
        if most is not None and _samples(asked) > most:
            raise ExecutionError(f"A call can send at most {most} sampling requests (limits.sampling)")
        self._asked = asked
        return entered

    async def open(self, questions: Mapping[str, InputRequest], *, open_questions: dict[str, InputRequest]) -> None:
        """Check new requests and add them to `open_questions`. Raise an error if a check fails."""
        new = {key: question for key, question in questions.items() if key not in open_questions}
        check_capabilities(new, self.call.terms.capabilities, self.call.revision)
        new = {key: for_revision(question, self.call.revision) for key, question in new.items()}
        open_questions.update(new)  # before the first await, so that concurrent requests are sent together
        try:
            await self.charge(new)
        except ExecutionError:
            for key in new:
                del open_questions[key]
            raise

    async def charge(self, questions: Mapping[str, InputRequest]) -> None:
        """Count sampling requests against their rate limit, and raise ExecutionError if the limit is exceeded."""
        samples = _samples(questions)
        if self._limits.rate is not None and samples:
            limit = RateLimit(per_caller=self._limits.rate)
            await self.call.server.rate_limiter.acquire(
                "limits.sampling",
                limit,
                caller=self.call.caller.rate_limit_key,
                cost=samples,
            )
        if (observer := self.call.server.interaction_observer) is not None:
            observer.input_requested(self.call, {key: question.method for key, question in questions.items()})

    async def once(self, key: str, function: Callable[[], Awaitable[T]]) -> T:
        """Call `function` only in the tool's first run, and return its result as JSON. Later runs reuse the result.

        Raises:
            TypeError: the result cannot be encoded as JSON.
            ValueError: the result contains a secret, which the client could read.
        """
        if key not in self.results:
            returned = await function()
            result = exact_json.loads(exact_json.dumps(returned, option=_STRICT))
            if (number := exact_json.non_finite(returned)) is not None:
                raise TypeError(f"the result of once({key!r}, …) cannot be encoded as JSON: {number}")
            if self.call.catalog.redactor.json(result) != result:
                raise ValueError(f"the result of once({key!r}, …) contains a secret, which clients could read")
            self.results[key] = result
        kept: T = self.results[key]
        return kept

    @property
    def _limits(self) -> SamplingLimits:
        return self.call.catalog.limits.sampling

    def _permitted(self, question: InputRequest) -> InputRequest:
        catalog = self.call.catalog
        # Control characters stay visible in texts for people, but are removed from texts for models.
        scrub = catalog.sanitizer.json if question.method == SAMPLE else catalog.redactor.json
        return limit_tokens(InputRequest(question.method, scrub(question.params)), self._limits.max_tokens)


def limit_tokens(question: InputRequest, max_tokens: int | None) -> InputRequest:
    if question.method != SAMPLE or max_tokens is None or question.params["maxTokens"] <= max_tokens:
        return question
    return replace(question, params={**question.params, "maxTokens": max_tokens})


def _samples(questions: Mapping[str, InputRequest]) -> int:
    return sum(question.method == SAMPLE for question in questions.values())


class RunSuspension:
    __slots__ = ("_deadline", "_open", "_permit", "_returning", "_since", "_waited")

    def __init__(
        self, deadline: Deadline, permit: ConcurrencyPermit, *, waited: Callable[[float], None] = lambda _: None
    ) -> None:
        """`waited` is called after each wait with the time at which the wait began, on the event loop's clock."""
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
        # Do not wait for the permit, because the cancelled call is about to end.
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
