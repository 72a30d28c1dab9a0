"""The bridge between a modern client and a legacy upstream: the upstream waits inside a call for its client's answer.

A modern client is asked by the result of its request, `input_required`, and comes back with the answer. Meanwhile the
call to the upstream stays open, parked: its id travels in the signed `requestState` of our own result, so that it is
bound to the principal and to the request. The retry brings the answer to the parked call, and never calls again. Where
the client knows tasks the call becomes one, which waits for input; then its next run brings the answer.

Threats answered here: parked calls without end (`MAX_PARKED`, `PARKED_SECONDS`), and two retries that answer at once.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, Protocol

import msgspec

from gateway.errors import ErrorCode, ExecutionError, RpcError
from gateway.executors.invocation import AwaitingInput, Invocation
from gateway.json_types import Json, JsonObject
from gateway.upstreams.client.caller import Caller
from gateway.upstreams.failures import UpstreamError
from gateway.upstreams.invocation_caller import InvocationCaller

MAX_PARKED: Final = 1000
PARKED_SECONDS: Final = 120.0
"""The longest wait for a client's retry; a task is waited for as long as its question may stay open."""
_KEY: Final = "upstream.call"


class _OpenQuestion(msgspec.Struct):
    key: str
    method: str
    params: JsonObject
    answer: "asyncio.Future[JsonObject]"


class ParkedCall:
    """One call to an upstream that outlives the requests of its client.

    It is the `Caller` of its own request: what the upstream says goes to whichever request of its client is served now.
    """

    def __init__(self, first: InvocationCaller) -> None:
        self.id: Final = secrets.token_urlsafe(16)
        self.task: asyncio.Task[JsonObject]
        self.open: list[_OpenQuestion] = []
        self.news: Final = asyncio.Event()
        self.caller: InvocationCaller | None = first
        """The one whose request is served now; None while it is parked."""
        self.expiry: asyncio.TimerHandle | None = None
        # Copied: the request that began the call is gone when a later one serves it.
        self.key: Final = first.key
        self.capabilities: Final = first.capabilities
        self.declared: Final = first.declared
        self.access_token: Final = first.access_token
        self.log_level: Final = first.log_level
        self.wants_progress: Final = first.wants_progress
        self.fields: Final = first.fields
        self.meta: Final = first.meta
        self.declined: Final = first.declined
        self._asked = 0

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        self._asked += 1
        answer: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        question = _OpenQuestion(f"{self.id}.{self._asked}", method, params, answer)
        self.open.append(question)
        self.news.set()
        try:
            return await answer
        finally:
            self.open.remove(question)

    async def progress(self, value: float, total: float | None, message: str | None) -> None:
        if self.caller is not None:
            await self.caller.progress(value, total, message)

    async def log(self, level: str, data: Json, logger: str | None) -> None:
        if self.caller is not None:
            await self.caller.log(level, data, logger)


class ParkedCalls:
    """All calls that may be parked, by id."""

    def __init__(self) -> None:
        self._calls: Final[dict[str, ParkedCall]] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def begin(self, call: ParkedCall, work: Callable[[], Awaitable[JsonObject]]) -> None:
        """Begin the call.

        Raises:
            UpstreamError: too many are open.
        """
        if len(self._calls) >= MAX_PARKED:
            raise UpstreamError(f"more than {MAX_PARKED} calls wait for their clients' answers")

        async def run() -> JsonObject:
            try:
                return await work()
            finally:
                # Set at the end, too: `_served` waits for a question or for that.
                call.news.set()

        call.task = asyncio.create_task(run(), name="call to an upstream")
        self._calls[call.id] = call

    def attach(self, call_id: str, caller: InvocationCaller) -> ParkedCall | None:
        """Take up a parked call; None if it is gone, or another request serves it."""
        call = self._calls.get(call_id)
        # Two retries at once: the second one must not answer what the first is answering.
        if call is None or call.caller is not None:
            return None
        if call.expiry is not None:
            call.expiry.cancel()
        call.caller = caller
        return call

    def park(self, call: ParkedCall, seconds: float) -> None:
        """Let it wait for its client, no longer than this."""
        call.caller = None
        # A client that never comes back must not hold a call, and its session with the upstream, for ever.
        call.expiry = asyncio.get_running_loop().call_later(seconds, self.end, call)

    def end(self, call: ParkedCall) -> None:
        """Cancel it, if it still runs, and forget it."""
        self._calls.pop(call.id, None)
        call.task.cancel()

    def give_up(self, kept: JsonObject) -> None:
        """End the call that waits for an answer, if it is among what its request has kept: nobody will answer."""
        call = self._calls.get(str(kept.get(_KEY)))
        if call is not None and call.caller is None:
            self.end(call)

    async def close(self) -> None:
        calls = [*self._calls.values()]
        for call in calls:
            self.end(call)
        await asyncio.gather(*(call.task for call in calls), return_exceptions=True)


class Send(Protocol):
    """Sends the request with more members in its params; `by` is its caller where that is another than the first."""

    async def __call__(self, more: JsonObject, *, by: Caller = ...) -> JsonObject: ...


async def bridged(  # noqa: PLR0913 - one fact of the call each
    parked: ParkedCalls,
    caller: InvocationCaller,
    send: Send,
    invocation: Invocation,
    *,
    name: str,
    ask_timeout: timedelta,
) -> JsonObject:
    """Make the call, or take up the one that waits for the answer which this request brings.

    Raises:
        AwaitingInput: the client has to answer first.
        ExecutionError: the call is gone.
    """
    begun: list[ParkedCall] = []

    async def begin() -> str:
        call = ParkedCall(caller)
        parked.begin(call, lambda: send({}, by=call))
        begun.append(call)
        return call.id

    # The first try begins the call; a retry finds its id in the request state, and begins nothing.
    call_id = await invocation.context.once(_KEY, begin)
    call = begun[0] if begun else parked.attach(call_id, caller)
    if call is None:
        raise ExecutionError(
            f"The call to {name} that waited for this answer is gone: it was given up, answered already, or this server"
            " was restarted or is another replica than the one that asked. What it did until then may remain."
        )
    is_parked = False
    try:
        return await _served(call, invocation)
    except AwaitingInput:
        is_parked = True
        raise
    finally:
        if is_parked:
            task_seconds = invocation.output_seconds
            longest = PARKED_SECONDS if task_seconds is None else task_seconds
            parked.park(call, min(longest, ask_timeout.total_seconds()))
        else:
            parked.end(call)


async def _served(call: ParkedCall, invocation: Invocation) -> JsonObject:
    """Serve a call until it is done: put its questions to the client, and its answers to it."""
    while True:
        if call.task.done():
            return call.task.result()
        if call.open:
            asked = {each.key: {"method": each.method, "params": each.params} for each in call.open}
            try:
                answers = await invocation.context.ask_inside(asked)
            except RpcError as error:
                _refuse(call, error)
            except ExecutionError as error:
                _refuse(call, RpcError(ErrorCode.INTERNAL_ERROR, str(error)))
            else:
                for question in tuple(call.open):
                    if question.key in answers and not question.answer.done():
                        question.answer.set_result(answers[question.key])
            await asyncio.sleep(0)  # what was answered is not open any more
        call.news.clear()
        if not call.open and not call.task.done():
            await call.news.wait()


def _refuse(call: ParkedCall, error: RpcError) -> None:
    for question in call.open:
        if not question.answer.done():
            question.answer.set_exception(error)
