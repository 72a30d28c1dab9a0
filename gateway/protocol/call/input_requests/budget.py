"""The input requests and the results of `once` of one call, within `limits.sampling`."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

import orjson

from gateway import exact_json
from gateway.config.models.quantities import RateLimit
from gateway.config.models.server import SamplingLimits
from gateway.errors import ExecutionError
from gateway.json_types import Json
from gateway.plugin import ToolError
from gateway.protocol.call.call import Call
from gateway.protocol.call.input_requests.capabilities import check_capabilities, limit_tokens
from gateway.protocol.call.input_requests.requests import SAMPLE, InputRequest

T = TypeVar("T")


class CallBudget:
    """The budget of one call. Each retry of a modern call repeats earlier requests, with a new budget."""

    __slots__ = ("_asked", "_call", "results")

    def __init__(self, call: Call) -> None:
        self._call: Final = call
        self._asked: dict[str, InputRequest] = {}
        self.results: Final[dict[str, Json]] = {}
        """The results of `once`, by key."""

    def register(self, questions: Mapping[str, InputRequest]) -> dict[str, InputRequest]:
        """Return the requests with secrets masked and tokens limited.

        Raises:
            ExecutionError: a key was used for a different request, or the call exceeds `per_call`.
        """
        entered = {key: self._permitted(question) for key, question in questions.items()}
        for key, question in entered.items():
            # basic/patterns/mrtr: only the key relates a response to its request.
            if self._asked.get(key, question) != question:
                raise ToolError(f"The key {key!r} belongs to another question of this call already")
        asked, most = {**self._asked, **entered}, self._limits.per_call
        if most is not None and _samples(asked) > most:
            raise ExecutionError(f"A call may ask the client's model {most} times at the most (limits.sampling)")
        self._asked = asked
        return entered

    async def open(self, questions: Mapping[str, InputRequest], *, beside: dict[str, InputRequest]) -> None:
        """Add requests to those in `beside`, after checking capabilities and limits.

        Raises:
            MissingCapabilityError: the client has not declared the capability.
            ExecutionError: the rate limit of sampling is exceeded.
        """
        new = {key: question for key, question in questions.items() if key not in beside}
        check_capabilities(new, self._call.terms.capabilities, self._call.revision)
        beside.update(new)  # before the first await, so that concurrent requests are sent together
        try:
            await self.charge(new)
        except ExecutionError:
            for key in new:
                del beside[key]
            raise

    async def charge(self, questions: Mapping[str, InputRequest]) -> None:
        """Count requests against the rate limit of sampling, and notify the observer.

        Raises:
            ExecutionError: the rate limit of sampling is exceeded.
        """
        samples = _samples(questions)
        if self._limits.rate is not None and samples:
            limit = RateLimit(per_caller=self._limits.rate)
            await self._call.server.rate_limiter.acquire(
                "limits.sampling",
                limit,
                caller=self._call.caller.rate_limit_key,
                cost=samples,
                saying="The client's model was asked too often",
            )
        if (observer := self._call.server.interaction_observer) is not None:
            observer.input_requested(self._call, {key: question.method for key, question in questions.items()})

    async def once(self, key: str, function: Callable[[], Awaitable[T]]) -> T:
        """Return the result of the first run of `function`, converted to JSON so that all tries see the same value.

        Raises:
            TypeError: the result cannot be written as JSON.
            ValueError: the result contains a secret, which the client could read.
        """
        if key not in self.results:
            returned = await function()
            result = exact_json.loads(exact_json.dumps(returned, option=_STRICT))
            if (number := exact_json.non_finite(returned)) is not None:
                raise TypeError(f"what once({key!r}, …) returned cannot be written as JSON: {number}")
            if self._call.catalog.redactor.json(result) != result:
                raise ValueError(f"what once({key!r}, …) returned holds a secret, and clients can read it")
            self.results[key] = result
        kept: T = self.results[key]
        return kept

    @property
    def _limits(self) -> SamplingLimits:
        return self._call.catalog.limits.sampling

    def _permitted(self, question: InputRequest) -> InputRequest:
        catalog = self._call.catalog
        # Control characters are removed from texts for models. In texts for people they are visible already.
        scrub = catalog.sanitizer.json if question.method == SAMPLE else catalog.redactor.json
        return limit_tokens(InputRequest(question.method, scrub(question.params)), self._limits.max_tokens)


_STRICT: Final = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS


def _samples(questions: Mapping[str, InputRequest]) -> int:
    return sum(question.method == SAMPLE for question in questions.values())
