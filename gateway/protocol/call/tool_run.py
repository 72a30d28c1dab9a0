"""Runs a tool for a call or a task.

A run counts against the rate limit, asks the user to confirm if configured, acquires a concurrency permit, and runs the
tool until the deadline. While an input request is open, the permit is released and the deadline is paused.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from gateway.catalog.primitives import Tool
from gateway.control_characters import visible
from gateway.deadline import DeadlineExceededError
from gateway.errors import ExecutionError, MissingCapabilityError
from gateway.executors.invocation import ToolResult
from gateway.executors.output.result_shaper import shaped
from gateway.executors.output.size_limit import text_block
from gateway.json_types import Json, JsonObject
from gateway.language.templates.templating import TextTemplate
from gateway.protocol.call.call import Call
from gateway.protocol.call.input_requests.requester import InputRequester
from gateway.protocol.call.input_requests.requests import CONFIRMATION_KEY, elicitation, read_answer
from gateway.protocol.call.run import Run, TaskOfRun
from gateway.threads import MAX_ON_LOOP, NoThreadFreeError
from gateway.wire import jsonrpc

_DECODING: Final = "The decoding of the files"


async def prepared_arguments(tool: Tool, arguments: JsonObject, call: Call) -> JsonObject:
    """Validate the arguments and decode the files in them, large files in a thread.

    Call this function before the run, so that invalid arguments use no permit and do not count against the rate limit.

    Raises:
        ExecutionError: the arguments are invalid, or decoding took too long.
    """
    is_small = tool.arguments.size_of_files(arguments) <= MAX_ON_LOOP
    prepared = tool.arguments.prepare(arguments) if is_small else await _prepared_in_thread(tool, arguments, call)
    # The earlier check, which also counts the message and `params`, does not cover objects that are sent as text.
    if prepared is not arguments and jsonrpc.is_deeper(prepared, call.server.max_depth - 2):
        raise ExecutionError(
            f"The arguments are nested more than {call.server.max_depth} levels deep (limits.request_depth)"
        )
    return prepared


async def _prepared_in_thread(tool: Tool, arguments: JsonObject, call: Call) -> JsonObject:
    seconds = tool.timeout.total_seconds()
    threads = call.server.services.worker_threads
    try:
        deadline = asyncio.get_running_loop().time() + seconds
        return await threads.run(partial(tool.arguments.prepare, arguments), deadline=deadline)
    except NoThreadFreeError as error:
        raise ExecutionError(f"{_DECODING} did not start, because all threads were busy for {seconds:g} s") from error
    except TimeoutError as error:
        raise DeadlineExceededError(_DECODING, seconds) from error


async def run_tool(call: Call, tool: Tool, arguments: JsonObject, task: TaskOfRun | None = None) -> ToolResult:
    """Run a tool with prepared arguments, possibly as a task.

    Raises:
        ExecutionError: the run failed. The model sees the message.
        RpcError: a plugin raised the error, or the client does not support an input request.
        AwaitingInput: the client must respond to input requests first.
    """
    async with Run(call, tool, task_of_run=task) as run:
        if tool.confirm is not None:
            await _confirm(tool, tool.confirm, run.with_caller(arguments), call, run.requester)
        invocation = await run.start(arguments)
        outcome = await tool.executor.execute(invocation)
        return await shaped(
            partial(tool.result, outcome, invocation),
            size=outcome.size,
            call=invocation,
            threads=call.server.services.worker_threads,
        )


def error_result(call: Call, text: str) -> ToolResult:
    return ToolResult(content=(text_block(call.catalog.sanitizer.text(text)),), is_error=True)


_NO_FIELDS: Final[JsonObject] = {"type": "object", "properties": {}}


async def _confirm(
    tool: Tool, message: TextTemplate, arguments: JsonObject, call: Call, requester: InputRequester
) -> None:
    """Wait for the user's confirmation. Return at once if the confirmation is optional and the client cannot ask.

    Raises:
        ExecutionError: the user did not confirm.
        MissingCapabilityError: the client lacks the capability.
        AwaitingInput: the client must ask the user first.
    """
    shown = _visible(call.catalog.masker.json(arguments))
    question = elicitation(message.render(shown), _NO_FIELDS)
    try:
        # Without proof, a client could send the confirmation without asking the user.
        answers = await requester.request({CONFIRMATION_KEY: question}, pause=_nothing_runs_yet, proven=True)
    except MissingCapabilityError as error:
        if tool.is_confirm_optional:
            _tell(call, "unasked")
            return
        raise MissingCapabilityError(
            error.capabilities, because="Nothing was done: the user must confirm this call, which"
        ) from error
    answer = read_answer(answers[CONFIRMATION_KEY])
    _tell(call, answer.action)
    if answer.action != "accept":
        raise ExecutionError(f"The user {_DID[answer.action]}; nothing was done.")


def _tell(call: Call, answer: str) -> None:
    if (observer := call.server.interaction_observer) is not None:
        observer.confirmed(call, answer)


def _visible(value: Json) -> Json:
    match value:
        case str():
            return visible(value, has_lines=False)
        case list():
            return [_visible(item) for item in value]
        case Mapping():
            return {_visible(name): _visible(member) for name, member in value.items()}
        case _:
            return value


_DID: Final = {"decline": "declined", "cancel": "dismissed the question"}


@asynccontextmanager
async def _nothing_runs_yet() -> AsyncIterator[None]:
    yield
