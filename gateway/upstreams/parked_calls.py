"""Calls to legacy servers that stay open between two requests of a modern client.

A modern client receives an input request as the result `input_required`, and retries its request with the response. The
signed `requestState` contains the id of the open call, which binds the call to the principal and the request.

A parked call exists only in the process that started it. Threats: calls that are never continued (`MAX_PARKED`,
`PARKED_SECONDS`), and two concurrent retries.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Final

import msgspec

from gateway.config.models.upstreams import Upstream
from gateway.errors import ErrorCode, ExecutionError, MalformedAnswerError, RpcError
from gateway.executors.invocation import AwaitingInput, Invocation
from gateway.json_types import JsonObject
from gateway.plugin import Context
from gateway.upstreams.client.relayed_call import RelayedCall
from gateway.upstreams.failures import UpstreamError

MAX_PARKED: Final = 1000
PARKED_SECONDS: Final = 120.0
_KEYS: Final = ("upstream.call", "upstream.second_call")
"""Names under which the id of the first call and the id of a repeated call are recorded."""
_REMOVED: Final = frozenset({"elicitationId", "task"})

Answers = Mapping[str, JsonObject] | RpcError
"""Responses by key, or an error if the client cannot be asked."""


class _Question(msgspec.Struct):
    key: str
    method: str
    params: JsonObject
    answer: "asyncio.Future[JsonObject]"


class ParkedCall(RelayedCall):
    def __init__(
        self, invocation: Invocation, config: Upstream, *, upstream: str, call_id: str, ended: Callable[[], object]
    ) -> None:
        """`ended` is called when the call is cancelled or its result was taken."""
        super().__init__(invocation, config, upstream=upstream)
        self._id: Final = call_id
        self._ended: Final = ended
        self._task: asyncio.Task[JsonObject] | None = None
        self._open: Final[list[_Question]] = []
        self._changed: Final = asyncio.Event()
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def is_parked(self) -> bool:
        return self._invocation is None

    def start(self, work: Callable[["ParkedCall"], Awaitable[JsonObject]]) -> None:
        async def run() -> JsonObject:
            try:
                return await work(self)
            finally:
                self._changed.set()

        # A task, because the call outlives the request that started it.
        self._task = asyncio.create_task(run(), name="call to an upstream")

    def attach(self, invocation: Invocation) -> bool:
        """Connect the call to a request of the client. Return False if another request is using the call."""
        if self._invocation is not None and self._invocation is not invocation:
            return False
        if self._expiry is not None:
            self._expiry.cancel()
        self._invocation = invocation
        return True

    def park(self, seconds: float) -> None:
        """Wait for the client's next request. Cancel the work after `seconds`."""
        self._invocation = None
        self._expiry = asyncio.get_running_loop().call_later(seconds, self.end)

    def end(self) -> None:
        self._ended()
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        self.end()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def proceed(self, answers: Answers) -> JsonObject | list[_Question]:
        """Send the client's responses to the server. Return the server's result or its next input requests."""
        for question in self._unanswered:
            if isinstance(answers, RpcError):
                question.answer.set_exception(answers)
            elif question.key in answers:
                question.answer.set_result(answers[question.key])
        task = self._task
        while task is not None and not task.done():
            if asked := self._unanswered:
                return asked
            self._changed.clear()
            await self._changed.wait()
        if task is None or task.cancelled():
            raise UpstreamError(_GONE.format(self._upstream))
        return self.with_notes(task.result())

    async def _ask(self, method: str, params: JsonObject) -> JsonObject:
        self._asked += 1
        answer: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        question = _Question(f"{self._id}.{self._asked}", method, params, answer)
        self._open.append(question)
        self._changed.set()
        try:
            return await answer
        finally:
            self._open.remove(question)

    @property
    def _unanswered(self) -> list[_Question]:
        return [each for each in self._open if not each.answer.done()]


class ParkedCalls:
    def __init__(self) -> None:
        self._calls: Final[dict[str, ParkedCall]] = {}
        self._process: Final = secrets.token_urlsafe(6)
        """Prefix of all ids, which distinguishes processes."""

    async def request(  # noqa: PLR0913 - the parts of a call
        self,
        invocation: Invocation,
        config: Upstream,
        send: Callable[[RelayedCall], Awaitable[JsonObject]],
        *,
        upstream: str,
        ask_timeout: timedelta,
        is_repeatable: bool,
    ) -> JsonObject:
        """Start a call, or continue the call that waits for this request. Raise AwaitingInput for input requests."""

        async def begin() -> str:
            if len(self._calls) >= MAX_PARKED:
                raise UpstreamError(f"more than {MAX_PARKED} calls are waiting for responses of their clients")
            call_id = f"{self._process}.{secrets.token_urlsafe(16)}"
            ended = partial(self._calls.pop, call_id, None)
            call = ParkedCall(invocation, config, upstream=upstream, call_id=call_id, ended=ended)
            call.start(send)
            self._calls[call_id] = call
            return call_id

        call = await self._call_of(invocation, begin, upstream=upstream, is_repeatable=is_repeatable)
        is_parked = False
        try:
            return await _conversation(call, invocation.context)
        except (AwaitingInput, MalformedAnswerError):
            is_parked = True
            raise
        finally:
            if is_parked:
                task_seconds = invocation.call.output_seconds
                longest = PARKED_SECONDS if task_seconds is None else task_seconds
                call.park(min(longest, ask_timeout.total_seconds()))
            else:
                call.end()

    def give_up(self, kept: JsonObject) -> None:
        """Cancel the parked call whose id is in `kept`, the recorded results of a request."""
        for key in _KEYS:
            call = self._calls.get(str(kept.get(key, "")))
            if call is not None and call.is_parked:
                call.end()

    async def close(self) -> None:
        await asyncio.gather(*(call.close() for call in [*self._calls.values()]))

    async def _call_of(
        self, invocation: Invocation, begin: Callable[[], Awaitable[str]], *, upstream: str, is_repeatable: bool
    ) -> ParkedCall:
        """Return the parked call of a retry, or a new call. If another process has the call, repeat the call once."""
        for key in _KEYS:
            call_id = await invocation.context.once(key, begin)
            call = self._calls.get(call_id)
            # Two concurrent retries must not both continue the call.
            if call is not None and call.attach(invocation):
                return call
            if call_id.startswith(self._process):
                raise ExecutionError(_GONE.format(upstream))
            if not is_repeatable:
                break
        raise ExecutionError(_ELSEWHERE.format(upstream))


async def _conversation(call: ParkedCall, context: Context) -> JsonObject:
    answers: Answers = {}
    while isinstance(stage := await call.proceed(answers), list):
        questions = {
            each.key: {
                "method": each.method,
                "params": {name: value for name, value in each.params.items() if name not in _REMOVED},
            }
            for each in stage
        }
        try:
            answers = await context.ask_inside(questions)
        except MalformedAnswerError:
            raise
        except RpcError as error:
            answers = error
        except ExecutionError as error:
            answers = RpcError(ErrorCode.INTERNAL_ERROR, str(error))
    return stage


_GONE: Final = (
    "The call to {} no longer exists: it timed out, was cancelled or was already continued. It may have had effects."
)
_ELSEWHERE: Final = (
    "The call to {} no longer exists: it was started by another replica of the gateway, or before a"
    " restart. It may have had effects. Send all requests of a client to the same replica."
)
