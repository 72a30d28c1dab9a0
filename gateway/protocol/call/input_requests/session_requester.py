"""Sends the input requests of legacy sessions, as JSON-RPC requests on the stream of the waiting call."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from gateway.deadline import DeadlineExceededError
from gateway.errors import ExecutionError, MalformedAnswerError
from gateway.json_types import Json, JsonObject
from gateway.protocol.call.call import Call
from gateway.protocol.call.input_requests.requester import InputRequester, Suspension, Where
from gateway.protocol.call.input_requests.requests import check_answer
from gateway.protocol.session import Session
from gateway.wire import jsonrpc
from gateway.wire.input_requests import InputRequest, check_capabilities, for_revision

_MAX_REASON_LENGTH: Final = 1000


class SessionRequester(InputRequester):
    def __init__(self, call: Call, session: Session, *, ask_timeout: timedelta) -> None:
        super().__init__(call)
        self._session: Final = session
        self._timeout: Final = ask_timeout.total_seconds()
        self._asking: Final[set[asyncio.Task[JsonObject]]] = set()

    async def close(self, _error: BaseException | None) -> None:
        if self._asking:
            await self._withdraw(self._asking)

    async def _ask(
        self, questions: Mapping[str, InputRequest], pause: Suspension, *, proven: bool, where: Where | None
    ) -> None:
        del where  # legacy revisions have no tasks
        del proven  # responses are matched by a unique id within the session
        # Check the capabilities first, because unsupported requests must not count against a limit.
        check_capabilities(questions, self.call.terms.capabilities, self.call.revision)
        converted = {key: for_revision(question, self.call.revision) for key, question in questions.items()}
        await self.charge(questions)
        async with pause():
            self.answers.update(await self._all_or_none(converted))

    async def _all_or_none(self, questions: Mapping[str, InputRequest]) -> Mapping[str, JsonObject]:
        tasks = {
            key: asyncio.create_task(self._answer(key, question), name="question")
            for key, question in questions.items()
        }
        self._asking.update(tasks.values())
        try:
            return dict(zip(tasks, await asyncio.gather(*tasks.values()), strict=True))
        finally:
            # If one task fails, `gather` does not cancel the other tasks.
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
                        f"The input request {key!r} cannot be sent: the client has no open event stream"
                    )
                response = await answering
        except (TimeoutError, asyncio.CancelledError) as error:
            # MCP 2025-11-25 basic/lifecycle, "Timeouts": the sender cancels a request that timed out.
            await self._send({"method": "notifications/cancelled", "params": {"requestId": request_id}})
            if isinstance(error, TimeoutError):
                what = f"The client's response to {key!r}"
                raise DeadlineExceededError(what, self._timeout, setting="ask_timeout") from None
            raise
        finally:
            self._session.forget_answer(request_id)
        if response.error is not None:
            raise ExecutionError(f"The client refused {key!r}: {_reason(response.error)}")
        try:
            check_answer(key, question, response.result)
        except MalformedAnswerError as error:
            # Convert the protocol error, because the malformed response is not part of the call's own request.
            raise ExecutionError(error.message) from error
        answer: JsonObject = response.result
        return answer

    async def _send(self, message: JsonObject) -> bool:
        return await self.call.exchange.send({"jsonrpc": jsonrpc.VERSION, **message})


def _reason(error: Json) -> str:
    message = error.get("message") if isinstance(error, dict) else None
    return message[:_MAX_REASON_LENGTH] if isinstance(message, str) else "no reason was given"
