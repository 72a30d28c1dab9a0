"""Turns tool calls into tasks, and runs the tools of tasks again.

A tool starts as in any call, and may send input requests. At its first wait, the task is stored and returned. With
`after` or `ask: before`, that happens later, unless the call ends first. If the task cannot be stored, the call
continues as an ordinary call. A `required` task is stored before the tool starts.
"""

from collections.abc import Callable

from gateway import exact_json
from gateway.catalog.catalog import Catalog
from gateway.catalog.primitives import TaskRules, Tool
from gateway.errors import ErrorCode, ExecutionError, OverLimitError, RpcError, TooManyRequestsError
from gateway.json_types import JsonObject
from gateway.protocol import results
from gateway.protocol.call.call import Call, ServerState, open_call
from gateway.protocol.call.run import check_access
from gateway.protocol.call.runner import prepared_arguments
from gateway.protocol.envelope import Envelope
from gateway.protocol.exchange import Binding, Caller
from gateway.protocol.tasks import wire
from gateway.protocol.tasks.task_call import TaskCall, completed, failed, failure_result, unavailable
from gateway.tasks.task import Ending, TaskRun
from gateway.telemetry.log_context import CALL, LOG_CONTEXT, new_id
from gateway.wire.jsonrpc import Request


def accepts(call: Call, rules: TaskRules) -> bool:
    """Return whether a call can become a task. Raise MissingCapabilityError if a required task is impossible."""
    if wire.declares_tasks(call.terms.capabilities, call.revision):
        return True
    if rules.is_required:
        raise wire.missing_extension()
    return False


async def answer(call: Call, tool: Tool, rules: TaskRules, arguments: JsonObject) -> JsonObject | None:
    """Return a task or the result of the call. Return None if tasks are unavailable.

    Raises:
        RpcError: a required task cannot be created, or the tool raised the error.
        ExecutionError: the tool was not run.
        AwaitingInput: the client must respond to input requests first.
    """
    tasks = call.server.tasks
    if problem := tasks.problem:
        if rules.is_required:
            raise unavailable(problem)
        return None
    try:
        task_id = tasks.limiter.reserve(call.caller.rate_limit_key, call.catalog.limits.tasks)
    except OverLimitError as error:
        raise TooManyRequestsError(str(error), retry_after=error.retry_after) from error
    return await TaskCall(call.caller, tool, tasks, request=call).answer(task_id, call, rules, arguments)


async def rerun(run: TaskRun, server: ServerState, *, catalog_for: Callable[[Caller], Catalog]) -> Ending:
    # Never reset, because this is a separate asyncio task.
    LOG_CONTEXT.set({CALL: new_id()})
    task = run.task
    content: JsonObject = exact_json.loads(task.call)
    caller = run.caller
    if not isinstance(caller, Caller):
        caller = Caller(
            binding=Binding(task.caller.binding),
            identity=task.caller.identity,
            address=task.caller.address,
            view=task.caller.view,
        )
    try:
        catalog = catalog_for(caller)
    except RpcError as error:
        return failed(error)
    tool = catalog.tool(task.tool)
    if tool is None:
        return failed(RpcError(ErrorCode.INVALID_PARAMS, "The tool no longer exists"))
    task_call = TaskCall(caller, tool, server.tasks, run=run)
    call = open_call(
        Request(task.id, "tools/call", content["params"]),
        terms=Envelope(task.caller.revision, content["client"], content["capabilities"], log_level=None),
        catalog=catalog,
        exchange=task_call,
        server=server,
    )
    call = task_call.attached_to(call)
    try:
        # The configuration and the caller's scopes may have changed.
        check_access(tool, call)
        arguments = await prepared_arguments(tool, content["params"].get("arguments", {}), call)
    except RpcError as error:
        return failed(error)
    except ExecutionError as error:
        return completed(results.tool_result(failure_result(call, error), call.revision))
    return await task_call.work(call, arguments)
