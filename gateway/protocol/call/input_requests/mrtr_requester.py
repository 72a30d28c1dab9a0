"""Input requests in the modern era: multi round-trip requests (2026-07-28 basic/patterns/mrtr).

A request without a response ends the call with `input_required`. The client retries with the responses, and the tool
runs again from its start.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from gateway.catalog.primitives import Primitive
from gateway.errors import InvalidRetryError
from gateway.executors.invocation import AwaitingInput
from gateway.json_types import Json, JsonObject
from gateway.protocol.call.call import Call
from gateway.protocol.call.input_requests.budget import CallBudget
from gateway.protocol.call.input_requests.request_state import State, StateScope
from gateway.protocol.call.input_requests.requester import Suspension, Where
from gateway.protocol.call.input_requests.requests import InputRequest
from gateway.protocol.call.input_requests.responses import check_answer


def brings_answers(call: Call) -> bool:
    return call.session is None and ("inputResponses" in call.params or "requestState" in call.params)


async def claim_answers(primitive: Primitive, call: Call) -> None:
    """Check whether another replica has used the `requestState`. Call this before `open_requester`."""
    await call.server.state_signer.claim(call.params.get("requestState"), _scope(call, definition=primitive.version))


class MrtrRequester:
    """Ends the call with `input_required` once a request is open, even if the tool catches the exception."""

    __slots__ = (
        "_answers",
        "_call",
        "_definition",
        "_has_state",
        "_needs_proof",
        "_open",
        "_responses",
        "budget",
    )

    def __init__(self, call: Call, *, definition: str) -> None:
        self._call: Final = call
        self._definition: Final = definition
        self.budget: Final = CallBudget(call)
        self._has_state, self._responses, self._answers = self._brought()
        """Whether the state is valid, the responses sent with it, and the accepted responses."""
        self._needs_proof = False
        self._open: Final[dict[str, InputRequest]] = {}

    async def close(self, error: BaseException | None) -> None:
        # A cancelled request has no response.
        if self._open and not isinstance(error, asyncio.CancelledError):
            raise AwaitingInput(self._result()) from None

    async def request(
        self,
        questions: Mapping[str, InputRequest],
        *,
        pause: Suspension,
        proven: bool = False,
        where: Where | None = None,
    ) -> Mapping[str, JsonObject]:
        del pause, where  # the run does not wait, and is not a task
        self._needs_proof |= proven
        entered = self.budget.register(questions)
        for key, question in entered.items():
            # Without a signed state, the response may be older than the request.
            if key not in self._answers and key in self._responses and (self._has_state or not proven):
                check_answer(key, question, self._responses[key])
                self._answers[key] = self._responses[key]
        unanswered = {key: question for key, question in entered.items() if key not in self._answers}
        if unanswered:
            await self.budget.open(unanswered, beside=self._open)
            raise AwaitingInput
        return {key: self._answers[key] for key in questions}

    @property
    def is_asking(self) -> bool:
        return bool(self._open)

    def result_with(self, questions: Mapping[str, InputRequest]) -> JsonObject:
        """Add checked requests to the open ones, and return an `InputRequiredResult`."""
        self._open.update(questions)
        return self._result()

    @property
    def _binding(self) -> StateScope:
        return _scope(self._call, definition=self._definition)

    def _brought(self) -> tuple[bool, JsonObject, dict[str, Json]]:
        responses = self._call.params.get("inputResponses", {})
        if not isinstance(responses, dict):
            raise InvalidRetryError("`inputResponses` must be an object")
        signed = self._call.params.get("requestState")
        if signed is None:
            return False, responses, {}
        state = self._call.server.state_signer.open(signed, self._binding)
        if state is None:
            return False, {}, {}  # the requests must be sent again
        self.budget.results.update(state.results)
        return True, responses, dict(state.answers)

    def _result(self) -> JsonObject:
        """Return an `InputRequiredResult`, with a state if one is needed. Raise ExecutionError if it is too large."""
        result: dict[str, Json] = {
            "resultType": "input_required",
            "inputRequests": {key: question.wire for key, question in self._open.items()},
        }
        if self._answers or self.budget.results or self._needs_proof:
            state = State(answers=self._answers, results=self.budget.results)
            result["requestState"] = self._call.server.state_signer.sign(
                state, self._binding, only_once=self._needs_proof
            )
        return result


def _scope(call: Call, *, definition: str) -> StateScope:
    return StateScope(
        owner=call.caller.identity.subject_key,
        view=call.caller.view,
        method=call.method,
        params=call.params,
        definition=definition,
    )
