"""Makes tasks of tool calls, and runs their tools again.

The tool begins as in any call. As soon as it first waits for something the task is written down and answered: by then
it has had the chance to ask what must be known before there is a task. With `after` or `ask: before` it runs on for a
while, and becomes a task if it is not done by then. If the task cannot be written down, it stays an ordinary call.

Where it could not stay one (`required`), the task is written down before the tool begins.
"""

from collections.abc import Callable

from gateway import exact_json
from gateway.catalog.catalog import Catalog
from gateway.catalog.primitives import TaskRules, Tool
from gateway.errors import ErrorCode, ExecutionError, OverLimitError, RpcError, TooManyRequestsError
from gateway.json_types import JsonObject
from gateway.protocol import results
from gateway.protocol.call.call import Call, ServerState, open_call
from gateway.protocol.call.runner import check_access, prepared_arguments
from gateway.protocol.envelope import Envelope
from gateway.protocol.exchange import Binding, Caller
from gateway.protocol.tasks import wire
from gateway.protocol.tasks.task_call import TaskCall, completed, failed, failure_result, unavailable
from gateway.tasks.task import Ending, TaskRun
from gateway.telemetry.log_context import CALL, LOG_CONTEXT, new_id
from gateway.wire.jsonrpc import Request


def accepts(call: Call, rules: TaskRules) -> bool:
    """Whether a call may become a task, and not only be an ordinary one.

    Raises:
        MissingCapabilityError: it must become one, and its client knows no tasks.
    """
    if wire.declares_tasks(call.terms.capabilities, call.revision):
        return True
    if rules.is_required:
        raise wire.missing_extension()
    return False


async def answer(call: Call, tool: Tool, rules: TaskRules, arguments: JsonObject) -> JsonObject | None:
    """Answer a call with a task, or directly; None if none can be made, and it is to be an ordinary call.

    Raises:
        RpcError: a task was to be made, and cannot; or the tool ended so.
        ExecutionError: the tool was not run.
        AwaitingInput: the client has to answer first.
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
    """Run the tool of a task again from its start. The work of `TaskRunner`."""
    # Not set back: this runs in a task of its own, and the context ends with that.
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
        return failed(RpcError(ErrorCode.INVALID_PARAMS, "The tool is not on offer any more"))
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
        # Again: the file, and what the caller may do, can have changed since the task was made.
        check_access(tool, call)
        arguments = await prepared_arguments(tool, content["params"].get("arguments", {}), call)
    except RpcError as error:
        return failed(error)
    except ExecutionError as error:
        return completed(results.tool_result(failure_result(call, error), call.revision))
    return await task_call.work(call, arguments)
