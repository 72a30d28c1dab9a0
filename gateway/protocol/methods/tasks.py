"""Implements tasks/get, tasks/update and tasks/cancel (ext-tasks: "Task Polling" to "Task Cancellation")."""

from msgspec.structs import replace

from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json, JsonObject
from gateway.protocol.call.call import Call
from gateway.protocol.call.input_requests.requests import check_answer
from gateway.protocol.tasks import wire
from gateway.protocol.tasks.task_requester import key_prefix, open_questions
from gateway.tasks.task import Task, TaskStatus, decode_memory, encode_memory
from gateway.wire import jsonrpc


async def get(call: Call) -> JsonObject:
    task = await _own_task(call)
    return wire.detailed(task, now=call.server.tasks.clock())


async def update(call: Call) -> JsonObject:
    """Accept responses to open input requests. Unknown keys are ignored, and one invalid response fails the request."""
    task = await _own_task(call)
    responses = call.params.get("inputResponses")
    if not isinstance(responses, dict):
        raise RpcError(ErrorCode.INVALID_PARAMS, "`inputResponses` must be an object")
    await call.server.tasks.answer(task.id, lambda found: _answered(found, responses, call), caller=call.caller)
    return {}


async def cancel(call: Call) -> JsonObject:
    task = await _own_task(call)
    # ext-tasks, "Task Cancellation": the acknowledgment does not contain the state.
    await call.server.tasks.cancel(task.id)
    return {}


async def _own_task(call: Call) -> Task:
    found = await own_task(jsonrpc.string_param(call.params, "taskId"), call)
    if found is None:
        raise RpcError(ErrorCode.INVALID_PARAMS, "Task not found")
    return found


async def own_task(task_id: str, call: Call) -> Task | None:
    task, caller = await call.server.tasks.get(task_id), call.caller
    return task if task is not None and task.belongs_to(caller.identity.subject_key, view=caller.view) else None


def _answered(task: Task, responses: dict[str, Json], call: Call) -> Task | None:
    if task.status is not TaskStatus.INPUT_REQUIRED:
        return None
    questions = open_questions(task.questions)
    taken = {key: responses[key] for key in questions if key in responses}
    if not taken:
        return None
    for key, answer in taken.items():
        check_answer(key, questions[key], answer)
    remaining = {key: question for key, question in questions.items() if key not in taken}
    memory = decode_memory(task.memory)
    prefix = key_prefix(memory.round)
    answers = memory.answers | {key.removeprefix(prefix): answer for key, answer in taken.items()}
    return replace(
        task,
        status=TaskStatus.INPUT_REQUIRED if remaining else TaskStatus.WORKING,
        questions=jsonrpc.encode({key: each.wire for key, each in remaining.items()}) if remaining else b"",
        memory=encode_memory(replace(memory, answers=answers)),
        caller=replace(task.caller, identity=call.caller.identity),  # with the current scopes
    )
