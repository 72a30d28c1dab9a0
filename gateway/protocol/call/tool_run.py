"""Prepares the arguments of a tool, and runs it: `confirm`, permit, work, output. One way for calls and for tasks."""

import asyncio
from functools import partial
from typing import Final

from gateway.catalog.primitives import Tool
from gateway.deadline import DeadlineExceededError
from gateway.errors import ExecutionError
from gateway.executors.invocation import ToolResult
from gateway.json_types import JsonObject
from gateway.protocol.call.call import Call
from gateway.protocol.call.input_requests.confirmation import confirm
from gateway.protocol.call.runner import Run
from gateway.threads import MAX_ON_LOOP, NoThreadFreeError, shaped
from gateway.wire import jsonrpc

_WHAT: Final = "Decoding the files"


async def prepared_arguments(tool: Tool, arguments: JsonObject, call: Call) -> JsonObject:
    """Return the arguments that a run begins with. See `CompiledArguments.prepare`.

    Large files are decoded in a worker thread. It comes before the run, whose permit and rate limit a call with wrong
    arguments does not use up.

    Raises:
        ExecutionError: they do not fit; or their files were not decoded within the tool's timeout.
    """
    is_small = tool.arguments.size_of_files(arguments) <= MAX_ON_LOOP
    prepared = tool.arguments.prepare(arguments) if is_small else await _prepared_in_thread(tool, arguments, call)
    # The check of the message has not seen what is inside a quoted object. It counts the message and `params`, too.
    if prepared is not arguments and jsonrpc.is_deeper(prepared, call.server.max_depth - 2):
        raise ExecutionError(f"The arguments nest more than {call.server.max_depth} deep (limits.request_depth)")
    return prepared


async def _prepared_in_thread(tool: Tool, arguments: JsonObject, call: Call) -> JsonObject:
    seconds = tool.timeout.total_seconds()
    threads = call.server.services.worker_threads
    try:
        deadline = asyncio.get_running_loop().time() + seconds
        return await threads.run(partial(tool.arguments.prepare, arguments), deadline=deadline)
    except NoThreadFreeError as error:
        raise ExecutionError(f"{_WHAT} did not begin: all threads were busy for {seconds:g} s") from error
    except TimeoutError as error:
        raise DeadlineExceededError(_WHAT, seconds) from error


async def run_tool(call: Call, tool: Tool, arguments: JsonObject) -> ToolResult:
    """Run a tool whose arguments are prepared.

    Raises:
        ExecutionError: it could not be run, or failed; the text is for the model.
        RpcError: the client cannot be asked, or a plugin raised it.
        AwaitingInput: the client has to answer first.
    """
    async with Run(call, tool) as run:
        if tool.confirm is not None:
            await confirm(tool.confirm, run.with_caller(arguments), call, run.open_requester())
        invocation = await run.start(arguments)
        outcome = await tool.executor.execute(invocation)
        return await shaped(
            partial(tool.result.shape, outcome, invocation),
            size=outcome.size,
            call=invocation,
            threads=call.server.services.worker_threads,
        )
