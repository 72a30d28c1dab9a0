"""Implements `tools/call` (MCP 2026-07-28 server/tools)."""

from typing import Final

import structlog

from gateway.catalog.primitives import Tool
from gateway.config.models.definition_keys import ToolTask
from gateway.deadline import DeadlineExceededError
from gateway.errors import ArgumentsError, ErrorCode, ExecutionError, MissingCapabilityError, OverLimitError, RpcError
from gateway.json_types import JsonObject
from gateway.protocol import results
from gateway.protocol.call.call import Call
from gateway.protocol.call.run import check_access, check_client
from gateway.protocol.call.tool_run import error_result, prepared_arguments, run_tool
from gateway.protocol.tasks import task_call
from gateway.protocol.tasks.wire import declares_tasks, missing_extension
from gateway.wire import headers, jsonrpc
from gateway.wire.revisions import Era

log: Final = structlog.get_logger(__name__)


async def call_tool(call: Call) -> JsonObject:
    """Call a tool after these checks.

    1. the tool must exist: -32602, and the caller must have the tool's scopes: 403
    2. over HTTP, the `Mcp-Param-*` fields must match the arguments: -32020
    3. the client must have the required capabilities: -32021, and the arguments must match the schema: `isError`

    Errors that the model can handle are returned as results with `isError`.
    """
    tool = call.target
    if not isinstance(tool, Tool):
        raise _unknown_tool(jsonrpc.string_param(call.params, "name"), call)
    arguments = jsonrpc.object_param(call.params, "arguments")
    check_access(tool, call)
    if tool.arguments.header_parameters and call.is_modern_http:
        headers.check_parameters(tool.arguments.header_parameters, arguments, call.caller.headers)
    try:
        check_client(tool, call)
        may_be_task = tool.task is not None and _accepts_task(call, tool.task)
        prepared = await prepared_arguments(tool, arguments, call)
        if may_be_task and tool.task is not None:
            answer = await task_call.answer(call, tool, tool.task, prepared)
            if answer is not None:
                return answer
        result = await run_tool(call, tool, prepared)
    except MissingCapabilityError as error:
        if call.era is Era.MODERN:
            raise
        result = error_result(call, error.message)  # legacy revisions have no error code for this
    except OverLimitError:
        raise  # see `refused`
    except ExecutionError as error:
        _log(error, tool)
        result = error_result(call, str(error))
    return results.tool_result(result, call.revision)


def _accepts_task(call: Call, config: ToolTask) -> bool:
    """Return whether the call can become a task. Raise MissingCapabilityError if a task is required but unsupported."""
    if declares_tasks(call.terms.capabilities, call.revision):
        return True
    if config.mode == "required":
        raise missing_extension()
    return False


def _unknown_tool(name: str, call: Call) -> RpcError:
    message, upstreams = f"Unknown tool: {name}", call.catalog.unavailable
    # Do not name the upstream server in a view, because views can hide upstream servers.
    if call.catalog.view is None and (prefixes := list(filter(name.startswith, upstreams))):
        message += f". Upstream `{upstreams[max(prefixes, key=len)]}` is unavailable"
    return RpcError(ErrorCode.INVALID_PARAMS, message)


def _log(error: ExecutionError, tool: Tool) -> None:
    # Check the cause too, because a backend may wrap the timeout to add the output so far.
    if DeadlineExceededError in {type(error), type(error.__cause__)}:
        log.warning("call timed out", tool=tool.name)
    elif isinstance(error, ArgumentsError):
        log.info("arguments refused", tool=tool.name, places=[pointer for pointer, _ in error.faults])


def refused(error: OverLimitError, call: Call) -> JsonObject:
    return results.tool_result(error_result(call, str(error)), call.revision)
