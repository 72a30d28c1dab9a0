"""Requests input from a call's client, in both eras behind one interface.

- legacy: each question is a JSON-RPC request on the stream of the call, and the call waits for the response;
- modern: a question whose answer has not come with this request ends the call with `input_required`; the client tries
  again with the answers, and the tool runs again from its start (basic/patterns/mrtr).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Final, Self, TypeVar

from gateway.catalog.primitives import Primitive
from gateway.errors import DeadlineExceededError, ErrorCode, ExecutionError, MalformedAnswerError, RpcError
from gateway.executors.invocation import AwaitingInput
from gateway.json_types import Json, JsonObject
from gateway.protocol.call.call import Call, OpenRequester
from gateway.protocol.input_requests.budget import CallBudget
from gateway.protocol.input_requests.capabilities import check_capabilities, for_revision
from gateway.protocol.input_requests.request_state import State, StateScope
from gateway.protocol.input_requests.requester import Suspension, Where
from gateway.protocol.input_requests.requests import InputRequest
from gateway.protocol.input_requests.responses import check_answer
from gateway.protocol.session import Session
from gateway.wire import jsonrpc

T = TypeVar("T")

_MAX_REASON_LENGTH: Final = 1000
"""Characters of what a client says when it refuses; the model reads them."""


def open_requester(primitive: Primitive, call: Call) -> OpenRequester:
    """Return the requester for a run of `primitive`, to be left as a context manager when the run ends.

    Raises:
        RpcError: -32602, the request's `inputResponses` or `requestState` cannot be.
    """
    if call.task is not None:
        return call.task.requester
    if call.session is not None:
        return SessionRequester(call, call.session, ask_timeout=primitive.ask_timeout)
    return MrtrRequester(call, definition=primitive.version)


def brings_answers(call: Call) -> bool:
    """Tell whether the request is a retry with answers (modern): they are checked whether or not the run asks."""
    return call.session is None and ("inputResponses" in call.params or "requestState" in call.params)


async def claim_answers(primitive: Primitive, call: Call) -> None:
    """Find out, before `open_requester`, whether another replica has used what the request brings.

    Raises:
        RpcError: see `RequestStateSigner.claim`.
    """
    await call.server.state_signer.claim(call.params.get("requestState"), _scope(call, definition=primitive.version))


class SessionRequester:
    """Legacy: asks, and waits. With the call end the questions that it has left open."""

    __slots__ = ("_answers", "_asking", "_call", "_session", "_timeout", "budget")

    def __init__(self, call: Call, session: Session, *, ask_timeout: timedelta) -> None:
        self._call: Final = call
        self._session: Final = session
        self.budget: Final = CallBudget(call)
        self._timeout: Final = ask_timeout.total_seconds()
        self._answers: Final[dict[str, JsonObject]] = {}
        self._asking: Final[set[asyncio.Task[JsonObject]]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._asking:
            await self._withdraw(self._asking)

    async def request(
        self,
        questions: Mapping[str, InputRequest],
        *,
        pause: Suspension,
        proven: bool = False,
        where: Where | None = None,
    ) -> Mapping[str, JsonObject]:
        del where  # a task is nothing that this era knows
        del proven  # an answer comes on the session that was asked, under an id that was never used before
        entered = self.budget.register(questions)
        new = {key: question for key, question in entered.items() if key not in self._answers}
        if new:
            check_capabilities(new, self._call.client_capabilities, self._call.revision)
            cut = {key: for_revision(question, self._call.revision) for key, question in new.items()}
            self.budget.charge(new)
            async with pause():
                self._answers.update(await self._all_or_none(cut))
        return {key: self._answers[key] for key in questions}

    async def once(self, key: str, function: Callable[[], Awaitable[T]]) -> T:
        return await self.budget.once(key, function)

    async def _all_or_none(self, questions: Mapping[str, InputRequest]) -> Mapping[str, JsonObject]:
        """Ask beside each other; with the first that fails, the others are withdrawn."""
        tasks = {
            key: asyncio.create_task(self._answer(key, question), name="question")
            for key, question in questions.items()
        }
        self._asking.update(tasks.values())
        try:
            return dict(zip(tasks, await asyncio.gather(*tasks.values()), strict=True))
        finally:
            await self._withdraw(set(tasks.values()))
            self._asking.difference_update(tasks.values())

    @staticmethod
    async def _withdraw(tasks: set[asyncio.Task[JsonObject]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(self, key: str, question: InputRequest) -> JsonObject:
        request_id, answering = self._session.expect_answer()
        try:
            async with asyncio.timeout(self._timeout):
                if not await self._send({"id": request_id, **question.wire}):
                    raise ExecutionError(
                        f"The client cannot be asked {key!r}: it takes no event stream, or is gone for good"
                    )
                response = await answering
        except (TimeoutError, asyncio.CancelledError) as error:
            await self._send({"method": "notifications/cancelled", "params": {"requestId": request_id}})
            if isinstance(error, TimeoutError):
                what = f"The client's answer to {key!r}"
                raise DeadlineExceededError(what, self._timeout, setting="ask_timeout") from None
            raise
        finally:
            self._session.forget_answer(request_id)
        if response.error is not None:
            raise ExecutionError(f"The client refused {key!r}: {_reason(response.error)}")
        try:
            check_answer(key, question, response.result)
        except MalformedAnswerError as error:
            raise ExecutionError(error.message) from error
        answer: JsonObject = response.result
        return answer

    async def _send(self, message: JsonObject) -> bool:
        return await self._call.exchange.send({"jsonrpc": jsonrpc.VERSION, **message})


class MrtrRequester:
    """Modern: finds the answers in the request, or ends the call.

    What `ask` raises tells the author's code to unwind, and no more: once a question is open, the call is answered with
    it when it ends, whatever the code did instead. Questions that were put beside each other go out together.
    """

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
        """Whether a state came that is still good, what answers came beside it, and those that count."""
        self._needs_proof = False
        self._open: Final[dict[str, InputRequest]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        del pause, where  # nothing waits, and there is no task
        self._needs_proof |= proven
        entered = self.budget.register(questions)
        for key, question in entered.items():
            if key not in self._answers and key in self._responses and (self._has_state or not proven):
                check_answer(key, question, self._responses[key])
                self._answers[key] = self._responses[key]
        unanswered = {key: question for key, question in entered.items() if key not in self._answers}
        if unanswered:
            self._put({key: question for key, question in unanswered.items() if key not in self._open})
            raise AwaitingInput
        return {key: self._answers[key] for key in questions}

    async def once(self, key: str, function: Callable[[], Awaitable[T]]) -> T:
        return await self.budget.once(key, function)

    @property
    def is_asking(self) -> bool:
        """Whether the call will be answered with questions."""
        return bool(self._open)

    def result_with(self, questions: Mapping[str, InputRequest]) -> JsonObject:
        """`InputRequiredResult` with questions that were checked and paid for, and with those that are open.

        Raises:
            ExecutionError: it would be too large.
        """
        self._open.update(questions)
        return self._result()

    def _put(self, questions: Mapping[str, InputRequest]) -> None:
        check_capabilities(questions, self._call.client_capabilities, self._call.revision)
        self.budget.charge(questions)
        self._open.update(questions)

    @property
    def _binding(self) -> StateScope:
        return _scope(self._call, definition=self._definition)

    def _brought(self) -> tuple[bool, JsonObject, dict[str, Json]]:
        responses = self._call.params.get("inputResponses", {})
        if not isinstance(responses, dict):
            raise RpcError(ErrorCode.INVALID_PARAMS, "`inputResponses` must be an object")
        signed = self._call.params.get("requestState")
        if signed is None:
            return False, responses, {}
        state = self._call.server.state_signer.open(signed, self._binding)
        if state is None:
            return False, {}, {}  # the answers are to what must be asked anew
        self.budget.results.update(state.results)
        return True, responses, dict(state.answers)

    def _result(self) -> JsonObject:
        """`InputRequiredResult`. A state goes along only where there is something to carry or to prove.

        Raises:
            ExecutionError: it would be too large.
        """
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
    """The scope of the states of a call."""
    return StateScope(
        owner=call.caller.identity.subject_key,
        view=call.caller.view,
        method=call.method,
        params=call.params,
        definition=definition,
    )


def _reason(error: Json) -> str:
    message = error.get("message") if isinstance(error, dict) else None
    return message[:_MAX_REASON_LENGTH] if isinstance(message, str) else "it gave no reason"
