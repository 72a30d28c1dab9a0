"""Requests input of legacy clients: each question is a JSON-RPC request on the stream of the call, which waits."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from gateway.deadline import DeadlineExceededError
from gateway.errors import ExecutionError, MalformedAnswerError
from gateway.json_types import Json, JsonObject
from gateway.protocol.call.call import Call
from gateway.protocol.call.input_requests.budget import CallBudget
from gateway.protocol.call.input_requests.capabilities import check_capabilities, for_revision
from gateway.protocol.call.input_requests.requester import Suspension, Where
from gateway.protocol.call.input_requests.requests import InputRequest
from gateway.protocol.call.input_requests.responses import check_answer
from gateway.protocol.session import Session
from gateway.wire import jsonrpc

_MAX_REASON_LENGTH: Final = 1000
"""Characters of what a client says when it refuses; the model reads them."""


class SessionRequester:
    """The `InputRequester` of a session: asks, and waits."""

    __slots__ = ("_answers", "_asking", "_call", "_session", "_timeout", "budget")

    def __init__(self, call: Call, session: Session, *, ask_timeout: timedelta) -> None:
        self._call: Final = call
        self._session: Final = session
        self.budget: Final = CallBudget(call)
        self._timeout: Final = ask_timeout.total_seconds()
        self._answers: Final[dict[str, JsonObject]] = {}
        self._asking: Final[set[asyncio.Task[JsonObject]]] = set()

    async def close(self, _error: BaseException | None) -> None:
        """Withdraw the questions that the run has left open."""
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
            # What this client cannot be asked is refused before it costs anything.
            check_capabilities(new, self._call.terms.capabilities, self._call.revision)
            cut = {key: for_revision(question, self._call.revision) for key, question in new.items()}
            await self.budget.charge(new)
            async with pause():
                self._answers.update(await self._all_or_none(cut))
        return {key: self._answers[key] for key in questions}

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
            # `gather` leaves the others running when one has failed.
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
            # 2025-11-25 basic/lifecycle, "Timeouts": whoever waits no longer for an answer says so.
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
            # In this era the answer is no part of the call's request, whose parameters were right.
            raise ExecutionError(error.message) from error
        answer: JsonObject = response.result
        return answer

    async def _send(self, message: JsonObject) -> bool:
        return await self._call.exchange.send({"jsonrpc": jsonrpc.VERSION, **message})


def _reason(error: Json) -> str:
    message = error.get("message") if isinstance(error, dict) else None
    return message[:_MAX_REASON_LENGTH] if isinstance(message, str) else "it gave no reason"
