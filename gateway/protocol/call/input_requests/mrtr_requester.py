"""Sends input requests in the modern era, as multi round-trip requests (MCP 2026-07-28 basic/patterns/mrtr).

An input request without a response ends the call with `input_required`. The client retries the call with the responses,
and the tool runs again from its start.
"""

import asyncio
from collections.abc import Mapping

from gateway.errors import InvalidRetryError
from gateway.executors.invocation import AwaitingInput
from gateway.json_types import Json, JsonObject
from gateway.protocol.call.call import Call
from gateway.protocol.call.input_requests.request_state import State, StateScope
from gateway.protocol.call.input_requests.requester import InputRequester, Suspension, Where
from gateway.protocol.call.input_requests.requests import check_answer
from gateway.wire.input_requests import InputRequest


class MrtrRequester(InputRequester):
    """Sends input requests by ending the call with `input_required`, even if the tool catches AwaitingInput."""

    def __init__(self, call: Call, *, definition: str) -> None:
        super().__init__(call)
        self._scope = _scope(call, definition=definition)
        self._has_state = False
        self._responses: JsonObject = {}
        """The responses that the client has sent with the call."""
        self._open: dict[str, InputRequest] = {}

    async def close(self, error: BaseException | None) -> None:
        # A cancelled request has no response.
        if self._open and not isinstance(error, asyncio.CancelledError):
            raise AwaitingInput(self.result_with(self._open)) from None

    async def _ask(
        self, questions: Mapping[str, InputRequest], pause: Suspension, *, proven: bool, where: Where | None
    ) -> None:
        del pause, where  # the run does not wait, and is not a task
        unanswered = dict(questions)
        for key, question in questions.items():
            # Without a signed state, there is no proof that this server sent the request.
            if key in self._responses and (self._has_state or not proven):
                check_answer(key, question, self._responses[key])
                self.answers[key] = self._responses[key]
                del unanswered[key]
        if unanswered:
            await self.open(unanswered, open_questions=self._open)
            raise AwaitingInput

    def result_with(self, questions: Mapping[str, InputRequest]) -> JsonObject:
        """Return an `InputRequiredResult` with all open input requests and `questions`.

        `questions` must already be checked. The result contains a signed state if the retry needs one. Raise
        ExecutionError if the state is too large.
        """
        result: dict[str, Json] = {
            "resultType": "input_required",
            "inputRequests": {key: question.wire for key, question in {**self._open, **questions}.items()},
        }
        if self.answers or self.results or self.needs_proof:
            state = State(answers=self.answers, results=self.results)
            result["requestState"] = self.call.server.state_signer.sign(state, self._scope, only_once=self.needs_proof)
        return result

    async def take_responses(self) -> None:
        """Take the responses and the state that the client has sent with a retry of the call."""
        responses = self.call.params.get("inputResponses", {})
        if not isinstance(responses, dict):
            raise InvalidRetryError("`inputResponses` must be an object")
        if (signed := self.call.params.get("requestState")) is not None:
            state = await self.call.server.state_signer.open(signed, self._scope)
            if state is None:
                return  # the requests must be sent again
            self._has_state = True
            self.results.update(state.results)
            self.answers.update(state.answers)
        self._responses = responses


def _scope(call: Call, *, definition: str) -> StateScope:
    return StateScope(
        owner=call.caller.identity.subject_key,
        view=call.caller.view,
        method=call.method,
        params=call.params,
        definition=definition,
    )
