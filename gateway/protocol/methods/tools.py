"""tools/list and tools/call (server/tools)."""

import math
from functools import partial
from typing import Final

from gateway.catalog.primitives import Tool
from gateway.errors import ExecutionError, MissingCapabilityError, OverLimitError
from gateway.executors.invocation import Invocation, Outcome, ToolResult, size_of
from gateway.json_types import JsonObject
from gateway.protocol import headers, results
from gateway.protocol.asking import open_asker
from gateway.protocol.confirmation import confirm
from gateway.protocol.methods import params
from gateway.protocol.request import RequestContext, Runtime
from gateway.protocol.running import check_access, check_client, counted, invocation
from gateway.protocol.unknown import unknown_tool
from gateway.protocol.versions import Era

_MOST_ON_THE_LOOP: Final = 2**19
"""Bytes of output, whose shaping takes a few hundredths of a second at the most."""


async def list_tools(request: RequestContext, runtime: Runtime) -> bytes:
    return runtime.pages.page(
        "tools", catalog=request.catalog, revision=request.revision, cursor=request.params.get("cursor")
    )


async def call_tool(request: RequestContext, runtime: Runtime) -> JsonObject:
    """Call a tool. What the model can mend or must know is a result with `isError`; an unknown tool is -32602."""
    name = params.string(request.params, "name")
    arguments = params.mapping(request.params, "arguments")
    tool = request.catalog.tool(name)
    if tool is None:
        raise unknown_tool(name, request, runtime)
    check_access(tool, request)
    if request.is_modern_http:
        headers.check_parameters(tool.header_parameters, arguments, request.exchange.caller.headers)
    return results.tool_result(await _result(tool, arguments, request, runtime), request.revision)


async def _result(tool: Tool, arguments: JsonObject, request: RequestContext, runtime: Runtime) -> ToolResult:
    try:
        check_client(tool, request)
        prepared = tool.arguments.prepare(arguments)
        with counted(tool, request, runtime):
            async with open_asker(tool, request, runtime, method="tools/call") as asker:
                if tool.confirm is not None:
                    await confirm(tool.confirm, prepared, asker, tell=partial(runtime.witness.confirmed, request))
                async with invocation("tools/call", tool, prepared, request, runtime, asker=asker) as call:
                    return await _shaped(tool, await tool.executor.execute(call), call, runtime)
    except MissingCapabilityError as error:
        if request.era is Era.MODERN:
            raise
        return _failure(error.message)  # older revisions have no code for it
    except OverLimitError:
        raise  # see `refused`
    except ExecutionError as error:
        return _failure(request.catalog.redactor.text(str(error)))


async def _shaped(tool: Tool, outcome: Outcome, call: Invocation, runtime: Runtime) -> ToolResult:
    """Shape what is small here, and in a thread what everybody else would have to wait for."""
    if size_of(outcome) <= _MOST_ON_THE_LOOP:
        return tool.result.shape(outcome, call)
    try:
        async with call.clock.limit():
            return await runtime.services.threads.run(
                tool.result.shape, outcome, call, deadline=math.inf, on_stuck=call.slot.hold_until
            )
    except TimeoutError:
        raise ExecutionError("The tool answered in time, but its output is too large to be worked on in time") from None


def refused(error: OverLimitError, request: RequestContext) -> JsonObject:
    """The answer to a call that a limit refused: the model is told which, and when to come back."""
    return results.tool_result(_failure(str(error)), request.revision)


def _failure(text: str) -> ToolResult:
    return ToolResult(content=({"type": "text", "text": text},), is_error=True)
