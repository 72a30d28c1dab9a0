"""How a call asks its client, in both eras behind one interface.

- legacy: each question is a JSON-RPC request on the stream of the call, and the call waits for the response;
- modern: a question whose answer has not come with this request ends the call with `input_required`; the client tries
  again with the answers, and the tool runs again from its start (basic/patterns/mrtr).
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeVar

from gateway.catalog.fingerprints import fingerprint
from gateway.catalog.primitives import Primitive
from gateway.errors import ErrorCode, ExecutionError, MalformedAnswerError, RpcError
from gateway.executors.invocation import AwaitingInput
from gateway.json_types import Json, JsonObject
from gateway.protocol import jsonrpc
from gateway.protocol.asker import Asker, Pause
from gateway.protocol.questions import Question, check_answer, check_capabilities, for_revision
from gateway.protocol.request import RequestContext
from gateway.protocol.sealed_state import Binding, State, StateSeal
from gateway.protocol.session import Session

T = TypeVar("T")


def open_asker(
    primitive: Primitive, request: RequestContext, *, method: str, seal: StateSeal, patience: timedelta
) -> Asker:
    """The way for a call of `primitive`.

    Raises:
        RpcError: -32602, the request's `inputResponses` or `requestState` cannot be.
    """
    if request.session is not None:
        return LiveAsker(request, request.session, patience=patience)
    return RetryAsker.open(primitive, request, method=method, seal=seal)


class LiveAsker:
    """Legacy: asks, and waits."""

    def __init__(self, request: RequestContext, session: Session, *, patience: timedelta) -> None:
        self._request: Final = request
        self._session: Final = session
        self._patience: Final = patience.total_seconds()
        self._results: Final[dict[str, Json]] = {}

    async def ask(
        self, questions: Mapping[str, Question], *, pause: Pause, proven: bool = False
    ) -> Mapping[str, JsonObject]:
        del proven  # an answer comes on the session that was asked, under an id that was never used before
        check_capabilities(questions, self._request.client_capabilities)
        cut = {key: for_revision(question, self._request.revision) for key, question in questions.items()}
        async with pause():
            answers = await _all_or_none([self._answer(key, question) for key, question in cut.items()])
        return dict(zip(cut, answers, strict=True))

    async def once(self, key: str, function: Callable[[], Awaitable[T]]) -> T:
        if key not in self._results:
            self._results[key] = await function()
        result: T = self._results[key]
        return result

    async def _answer(self, key: str, question: Question) -> JsonObject:
        request_id, answering = self._session.expect_answer()
        try:
            if not await self._send({"id": request_id, **question.wire}):
                raise ExecutionError(
                    f"The client cannot be asked {key!r}: it takes no event stream, or is gone for good"
                )
            async with asyncio.timeout(self._patience):
                answer = await answering
        except (TimeoutError, asyncio.CancelledError) as error:
            await self._send({"method": "notifications/cancelled", "params": {"requestId": request_id}})
            if isinstance(error, TimeoutError):
                raise ExecutionError(f"The client did not answer {key!r} within {self._patience:g} s") from None
            raise
        finally:
            self._session.forget_answer(request_id)
        try:
            check_answer(key, question, answer)
        except MalformedAnswerError as error:
            raise ExecutionError(error.message) from error
        return answer

    async def _send(self, message: JsonObject) -> bool:
        return await self._request.exchange.send({"jsonrpc": jsonrpc.VERSION, **message})


@dataclass(slots=True, kw_only=True)
class RetryAsker:
    """Modern: finds the answers in the request, or ends the call."""

    request: RequestContext
    primitive: Primitive
    method: str
    seal: StateSeal
    responses: JsonObject
    state: State | None
    """What came with the request and is still good."""
    answers: dict[str, Json]
    results: dict[str, Json]
    needs_proof: bool = False

    @classmethod
    def open(cls, primitive: Primitive, request: RequestContext, *, method: str, seal: StateSeal) -> "RetryAsker":
        responses = request.params.get("inputResponses", {})
        if not isinstance(responses, dict):
            raise RpcError(ErrorCode.INVALID_PARAMS, "`inputResponses` must be an object")
        asker = cls(
            request=request,
            primitive=primitive,
            method=method,
            seal=seal,
            responses=responses,
            state=None,
            answers={},
            results={},
        )
        if (sealed := request.params.get("requestState")) is not None:
            asker._take(seal.open(sealed, asker._binding))
        return asker

    async def ask(
        self, questions: Mapping[str, Question], *, pause: Pause, proven: bool = False
    ) -> Mapping[str, JsonObject]:
        del pause  # nothing waits
        self.needs_proof |= proven
        for key, question in questions.items():
            if key not in self.answers and key in self.responses and (self.state is not None or not proven):
                check_answer(key, question, self.responses[key])
                self.answers[key] = self.responses[key]
        open_questions = {key: question for key, question in questions.items() if key not in self.answers}
        if open_questions:
            check_capabilities(open_questions, self.request.client_capabilities)
            raise AwaitingInput(self._result(open_questions))
        return {key: self.answers[key] for key in questions}

    async def once(self, key: str, function: Callable[[], Awaitable[T]]) -> T:
        if key not in self.results:
            self.results[key] = await function()
        result: T = self.results[key]
        return result

    def _take(self, state: State | None) -> None:
        self.state = state
        if state is None:
            self.responses = {}  # they answer what is to be asked anew
        else:
            self.answers.update(state.answers)
            self.results.update(state.results)

    def _result(self, questions: Mapping[str, Question]) -> JsonObject:
        """`InputRequiredResult`. A state goes along only where there is something to carry or to prove."""
        result: dict[str, Json] = {
            "resultType": "input_required",
            "inputRequests": {key: question.wire for key, question in questions.items()},
        }
        if self.answers or self.results or self.needs_proof:
            state = State(answers=self.answers, results=self.results)
            result["requestState"] = self.seal.seal(state, self._binding, only_once=self.needs_proof)
        return result

    @property
    def _binding(self) -> Binding:
        return Binding.of(
            principal=self.request.exchange.caller.principal,
            method=self.method,
            params=self.request.params,
            definition=fingerprint([self.primitive.definition]),
        )


async def _all_or_none(asking: Sequence[Coroutine[Json, Json, JsonObject]]) -> Sequence[JsonObject]:
    """Run them beside each other; with the first that fails, the others are withdrawn."""
    tasks = [asyncio.create_task(each, name="question") for each in asking]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
