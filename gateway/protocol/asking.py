"""How a call asks its client, in both eras behind one interface.

- legacy: each question is a JSON-RPC request on the stream of the call, and the call waits for the response;
- modern: a question whose answer has not come with this request ends the call with `input_required`; the client tries
  again with the answers, and the tool runs again from its start (basic/patterns/mrtr).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from types import TracebackType
from typing import Final, Self, TypeVar

from gateway.catalog.primitives import Primitive
from gateway.errors import ErrorCode, ExecutionError, MalformedAnswerError, RpcError
from gateway.executors.invocation import AwaitingInput
from gateway.json_types import Json, JsonObject
from gateway.protocol import jsonrpc
from gateway.protocol.answers import check_answer
from gateway.protocol.askable import check_capabilities, for_revision
from gateway.protocol.asker import Asker, Pause
from gateway.protocol.ledger import Ledger
from gateway.protocol.questions import Question
from gateway.protocol.request import RequestContext, Runtime
from gateway.protocol.sealed_state import Binding, State, StateSeal
from gateway.protocol.session import Session

T = TypeVar("T")

_LONGEST_REASON: Final = 1000
"""Characters of what a client says when it refuses; the model reads them."""


def open_asker(
    primitive: Primitive, request: RequestContext, runtime: Runtime, *, method: str
) -> AbstractAsyncContextManager[Asker]:
    """The way for a call of `primitive`, for as long as the call lasts.

    Raises:
        RpcError: -32602, the request's `inputResponses` or `requestState` cannot be.
    """
    ledger = Ledger(request, rates=runtime.rates, witness=runtime.witness)
    if request.session is not None:
        return LiveAsker(request, request.session, ledger=ledger, patience=primitive.ask_timeout)
    return RetryAsker(request, method=method, definition=primitive.version, ledger=ledger, seal=runtime.seal)


class LiveAsker:
    """Legacy: asks, and waits. With the call end the questions that it has left open."""

    __slots__ = ("_answers", "_asking", "_ledger", "_patience", "_request", "_session")

    def __init__(self, request: RequestContext, session: Session, *, ledger: Ledger, patience: timedelta) -> None:
        self._request: Final = request
        self._session: Final = session
        self._ledger: Final = ledger
        self._patience: Final = patience.total_seconds()
        self._answers: Final[dict[str, JsonObject]] = {}
        self._asking: Final[set[asyncio.Task[JsonObject]]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._asking:
            await self._withdraw(self._asking)

    async def ask(
        self, questions: Mapping[str, Question], *, pause: Pause, proven: bool = False
    ) -> Mapping[str, JsonObject]:
        del proven  # an answer comes on the session that was asked, under an id that was never used before
        entered = self._ledger.enter(questions)
        new = {key: question for key, question in entered.items() if key not in self._answers}
        if new:
            check_capabilities(new, self._request.client_capabilities, self._request.revision)
            cut = {key: for_revision(question, self._request.revision) for key, question in new.items()}
            self._ledger.charge(new)
            async with pause():
                self._answers.update(await self._all_or_none(cut))
        return {key: self._answers[key] for key in questions}

    async def once(self, key: str, function: Callable[[], Awaitable[T]]) -> T:
        return await self._ledger.once(key, function)

    async def _all_or_none(self, questions: Mapping[str, Question]) -> Mapping[str, JsonObject]:
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

    async def _answer(self, key: str, question: Question) -> JsonObject:
        request_id, answering = self._session.expect_answer()
        try:
            async with asyncio.timeout(self._patience):
                if not await self._send({"id": request_id, **question.wire}):
                    raise ExecutionError(
                        f"The client cannot be asked {key!r}: it takes no event stream, or is gone for good"
                    )
                response = await answering
        except (TimeoutError, asyncio.CancelledError) as error:
            await self._send({"method": "notifications/cancelled", "params": {"requestId": request_id}})
            if isinstance(error, TimeoutError):
                raise ExecutionError(
                    f"The client did not answer {key!r} within {self._patience:g} s (ask_timeout)"
                ) from None
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
        return await self._request.exchange.send({"jsonrpc": jsonrpc.VERSION, **message})


class RetryAsker:
    """Modern: finds the answers in the request, or ends the call.

    What `ask` raises tells the author's code to unwind, and no more: once a question is open, the call is answered with
    it when it ends, whatever the code did instead. Questions that were put beside each other go out together.
    """

    __slots__ = (
        "_answers",
        "_definition",
        "_has_state",
        "_ledger",
        "_method",
        "_needs_proof",
        "_open",
        "_request",
        "_responses",
        "_seal",
    )

    def __init__(
        self, request: RequestContext, *, method: str, definition: str, ledger: Ledger, seal: StateSeal
    ) -> None:
        self._request: Final = request
        self._method: Final = method
        self._definition: Final = definition
        self._ledger: Final = ledger
        self._seal: Final = seal
        self._has_state, self._responses, self._answers = self._brought()
        """Whether a state came that is still good, what answers came beside it, and those that count."""
        self._needs_proof = False
        self._open: Final[dict[str, Question]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open and not isinstance(error, asyncio.CancelledError):
            raise AwaitingInput(self._result()) from None

    async def ask(
        self, questions: Mapping[str, Question], *, pause: Pause, proven: bool = False
    ) -> Mapping[str, JsonObject]:
        del pause  # nothing waits
        self._needs_proof |= proven
        entered = self._ledger.enter(questions)
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
        return await self._ledger.once(key, function)

    def _put(self, questions: Mapping[str, Question]) -> None:
        check_capabilities(questions, self._request.client_capabilities, self._request.revision)
        self._ledger.charge(questions)
        self._open.update(questions)

    @property
    def _binding(self) -> Binding:
        """What a state of this call belongs to."""
        return Binding(
            owner=self._request.exchange.caller.identity.owner,
            method=self._method,
            params=self._request.params,
            definition=self._definition,
        )

    def _brought(self) -> tuple[bool, JsonObject, dict[str, Json]]:
        responses = self._request.params.get("inputResponses", {})
        if not isinstance(responses, dict):
            raise RpcError(ErrorCode.INVALID_PARAMS, "`inputResponses` must be an object")
        sealed = self._request.params.get("requestState")
        if sealed is None:
            return False, responses, {}
        state = self._seal.open(sealed, self._binding)
        if state is None:
            return False, {}, {}  # the answers are to what must be asked anew
        self._ledger.results.update(state.results)
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
        if self._answers or self._ledger.results or self._needs_proof:
            state = State(answers=self._answers, results=self._ledger.results)
            result["requestState"] = self._seal.seal(state, self._binding, only_once=self._needs_proof)
        return result


def _reason(error: Json) -> str:
    message = error.get("message") if isinstance(error, dict) else None
    return message[:_LONGEST_REASON] if isinstance(message, str) else "it gave no reason"
