"""What one call has asked and learnt so far: one question for each key, and no more than `limits.sampling` lets it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

import orjson

from gateway.access.rates import Rates
from gateway.config.rates import RateLimit
from gateway.config.server import SamplingLimits
from gateway.errors import ExecutionError
from gateway.json_types import Json
from gateway.plugin import ToolError
from gateway.protocol.askable import with_at_most
from gateway.protocol.questions import SAMPLE, Question
from gateway.protocol.request import RequestContext, Witness

T = TypeVar("T")


class Ledger:
    """Of one call. A modern call is tried several times and has one for each try, which repeats what came before."""

    __slots__ = ("_asked", "_rates", "_request", "_witness", "results")

    def __init__(self, request: RequestContext, *, rates: Rates, witness: Witness) -> None:
        self._request: Final = request
        self._rates: Final = rates
        self._witness: Final = witness
        self._asked: dict[str, Question] = {}
        self.results: Final[dict[str, Json]] = {}
        """By key, what `once` has brought."""

    def enter(self, questions: Mapping[str, Question]) -> dict[str, Question]:
        """The questions as they may be asked: their secrets masked, their tokens within the limit.

        Raises:
            ExecutionError: a key is that of another question already, or the call would ask the model too often.
        """
        entered = {key: self._permitted(question) for key, question in questions.items()}
        for key, question in entered.items():
            if self._asked.get(key, question) != question:
                raise ToolError(f"The key {key!r} belongs to another question of this call already")
        asked, most = {**self._asked, **entered}, self._limits.per_call
        if most is not None and _samples(asked) > most:
            raise ExecutionError(f"A call may ask the client's model {most} times at the most (limits.sampling)")
        self._asked = asked
        return entered

    def charge(self, questions: Mapping[str, Question]) -> None:
        """Pay for questions that go out.

        Raises:
            ExecutionError: the caller's model has been asked too often lately.
        """
        samples = _samples(questions)
        if self._limits.rate is not None and samples:
            limit = RateLimit(per_caller=self._limits.rate)
            self._rates.spend(
                "limits.sampling",
                limit,
                caller=self._request.exchange.caller.payer,
                cost=samples,
                saying="The client's model was asked too often",
            )
        self._witness.asked(self._request, questions)

    async def once(self, key: str, function: Callable[[], Awaitable[T]]) -> T:
        """What `function` returned when it first ran, as JSON has it, so that it is the same in every try.

        Raises:
            TypeError: it is not JSON.
            ValueError: it holds a secret, which the client would read.
        """
        if key not in self.results:
            result = orjson.loads(orjson.dumps(await function(), option=_STRICT))
            if self._request.catalog.redactor.json(result) != result:
                raise ValueError(f"what once({key!r}, …) returned holds a secret, and clients can read it")
            self.results[key] = result
        kept: T = self.results[key]
        return kept

    @property
    def _limits(self) -> SamplingLimits:
        return self._request.catalog.limits.sampling

    def _permitted(self, question: Question) -> Question:
        masked = Question(question.method, self._request.catalog.redactor.json(question.params))
        return with_at_most(masked, self._limits.max_tokens)


_STRICT: Final = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS


def _samples(questions: Mapping[str, Question]) -> int:
    return sum(question.method == SAMPLE for question in questions.values())
