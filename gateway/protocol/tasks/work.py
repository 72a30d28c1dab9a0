"""Runs the tool of a task once, and says how that ended: with a result, an error, or questions."""

from typing import Final

import structlog

from gateway.catalog.primitives import Tool
from gateway.control_characters import visible
from gateway.errors import ErrorCode, ExecutionError, OverLimitError, RpcError
from gateway.executors.invocation import AwaitingInput, ToolResult
from gateway.json_types import Json, JsonObject
from gateway.protocol import results
from gateway.protocol.call.call import Call
from gateway.protocol.call.tool_run import run_tool
from gateway.protocol.tasks.task_call import TaskCall
from gateway.tasks.run import Ending
from gateway.tasks.task import TaskStatus
from gateway.wire import jsonrpc

log: Final = structlog.get_logger(__name__)


async def run_work(task_call: TaskCall, call: Call, tool: Tool, arguments: JsonObject) -> Ending:
    """Run the tool; what became of it is in `task_call`, too, for a request that is still open."""
    try:
        try:
            found = await _result_or_none(call, tool, arguments)
            if found is None:
                return _waiting(task_call)
            result = found
        except OverLimitError as error:
            task_call.error = error
            result = failure_result(call, error)
        except ExecutionError as error:
            result = failure_result(call, error)
    except RpcError as error:
        error.message = call.catalog.sanitizer.text(error.message)
        error.data = call.catalog.sanitizer.json(error.data)
        task_call.error = error
        return failed(error)
    except Exception:  # Boundary: our bug must cost its caller an error, and nobody else anything.
        log.exception("request failed", method=call.method, correlation_id=call.id)
        task_call.error = RpcError(ErrorCode.INTERNAL_ERROR, f"Internal error (correlation id {call.id})")
        return failed(task_call.error)
    task_call.result = results.tool_result(result, call.revision)
    return completed(task_call.result)


def completed(result: JsonObject) -> Ending:
    return Ending(status=TaskStatus.COMPLETED, outcome=jsonrpc.encode({"resultType": "complete", **result}))


def failed(error: RpcError) -> Ending:
    body: dict[str, Json] = {"code": int(error.code), "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    return Ending(
        status=TaskStatus.FAILED, message=visible(error.message, has_lines=False), outcome=jsonrpc.encode(body)
    )


def failure_result(call: Call, error: ExecutionError) -> ToolResult:
    text = call.catalog.sanitizer.text(str(error))
    return ToolResult(content=({"type": "text", "text": text},), is_error=True)


async def _result_or_none(call: Call, tool: Tool, arguments: JsonObject) -> ToolResult | None:
    """The tool's result; None if its client has to answer first."""
    try:
        return await run_tool(call, tool, arguments)
    except AwaitingInput:
        return None


def _waiting(task_call: TaskCall) -> Ending:
    requester = task_call.requester
    return Ending(status=TaskStatus.INPUT_REQUIRED, questions=requester.questions(), memory=requester.memory())
