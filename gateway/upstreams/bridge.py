"""The bridge between a modern client and a legacy upstream: the upstream waits inside a call for its client's answer.

A modern client is asked by the result of its request, `input_required`, and comes back with the answer. Meanwhile the
call to the upstream stays open, parked: its id travels in the signed `requestState` of our own result, so that it is
bound to the principal and to the request. The retry brings the answer to the parked call, and never calls again. Where
the client knows tasks the call becomes one, which waits for input; then its next run brings the answer.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, Protocol

from gateway.errors import ErrorCode, ExecutionError, MalformedAnswerError, RpcError
from gateway.executors.invocation import AwaitingInput, Invocation
from gateway.json_types import JsonObject
from gateway.upstreams.client.caller import Caller
from gateway.upstreams.failures import CallGoneError
from gateway.upstreams.invocation_caller import InvocationCaller
from gateway.upstreams.parked_call import Answers, Asked, ParkedCall
from gateway.upstreams.parked_calls import KEY, PARKED_SECONDS, ParkedCalls
from gateway.upstreams.remote_call import RemoteCall

_GONE: Final = frozenset({"elicitationId", "task"})
"""Members of questions until 2025-11-25: what they stood for is carried by `requestState` and by our own tasks."""


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
        MalformedAnswerError: it has, with what is no answer; the call goes on waiting.
        ExecutionError: the call is gone.
    """
    begun: list[ParkedCall] = []

    async def begin() -> str:
        begun.append(parked.begin(caller, lambda call: send({}, by=call)))
        return begun[0].id

    # The first try begins the call; a retry finds its id in the request state, and begins nothing.
    call_id = await invocation.context.once(KEY, begin)
    task_seconds = invocation.call.output_seconds
    seconds = min(PARKED_SECONDS if task_seconds is None else task_seconds, ask_timeout.total_seconds())
    try:
        call = begun[0] if begun else parked.attach(call_id, caller, invocation.deadline, park_seconds=seconds)
        is_parked = False
        try:
            return await _served(call, invocation)
        except (AwaitingInput, MalformedAnswerError):
            is_parked = True
            raise
        finally:
            if is_parked:
                call.park(seconds)
            else:
                call.end()
    except CallGoneError as error:
        raise ExecutionError(
            f"The call to {name} that waited for this answer is gone: it was given up, answered already, or the server"
            " that asked was restarted. What it did until then may remain."
        ) from error


async def _served(call: ParkedCall | RemoteCall, invocation: Invocation) -> JsonObject:
    """Serve a call until it is done: put its questions to the client, and its answers to it."""
    answers: Answers = {}
    while isinstance(stage := await call.go_on(answers), Asked):
        try:
            answers = await invocation.context.ask_inside(_for_modern(stage.questions))
        except MalformedAnswerError:
            raise
        except RpcError as error:
            answers = error
        except ExecutionError as error:
            answers = RpcError(ErrorCode.INTERNAL_ERROR, str(error))
    return stage


def _for_modern(questions: Mapping[str, JsonObject]) -> dict[str, JsonObject]:
    """Leave out of questions what 2026-07-28 has taken away."""
    return {
        key: {**question, "params": {name: value for name, value in question["params"].items() if name not in _GONE}}
        for key, question in questions.items()
    }
