"""Runs a tool whose arguments are right: `confirm`, permit, work, output. One way for calls and for tasks."""

from functools import partial

from gateway.catalog.primitives import Tool
from gateway.executors.invocation import ToolResult
from gateway.executors.threads import shaped
from gateway.json_types import JsonObject
from gateway.protocol.call.call import Call
from gateway.protocol.call.runner import Run
from gateway.protocol.input_requests.confirmation import confirm


async def run_tool(call: Call, tool: Tool, arguments: JsonObject) -> ToolResult:
    """Run a tool.

    Raises:
        ExecutionError: it could not be run, or failed; the text is for the model.
        RpcError: the client cannot be asked, or a plugin raised it.
        AwaitingInput: the client has to answer first.
    """
    async with Run(call, tool) as run:
        if tool.confirm is not None:
            await confirm(tool.confirm, arguments, run)
        invocation = await run.start(arguments)
        outcome = await tool.executor.execute(invocation)
        return await shaped(
            partial(tool.result.shape, outcome, invocation),
            size=outcome.size,
            call=invocation,
            threads=call.server.services.worker_threads,
        )
