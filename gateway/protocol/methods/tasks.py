"""tasks/get, tasks/update and tasks/cancel (ext-tasks: "Task Polling", "Task Update Requests", "Task Cancellation").

Somebody else's task is as unknown as one that never was.
"""

from msgspec.structs import replace

from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json, JsonObject
from gateway.protocol.call.call import Call
from gateway.protocol.call.input_requests.requests import InputRequest
from gateway.protocol.call.input_requests.responses import check_answer
from gateway.protocol.methods import params
from gateway.protocol.tasks import wire
from gateway.protocol.tasks.task_requester import key_prefix, open_questions
from gateway.tasks.task import Task, TaskMemory, TaskStatus, decode_memory, encode_memory
from gateway.wire import jsonrpc


async def get(call: Call) -> JsonObject:
    task = await _own_task(call)
    return wire.detailed(task, now=call.server.tasks.clock())


async def update(call: Call) -> JsonObject:
    """Take answers to open questions. Answers to others are ignored, and if one does not fit, none is taken."""
    task = await _own_task(call)
    responses = call.params.get("inputResponses")
    if not isinstance(responses, dict):
        raise RpcError(ErrorCode.INVALID_PARAMS, "`inputResponses` must be an object")
    await call.server.tasks.answer(task.id, lambda found: _answered(found, responses, call), caller=call.caller)
    return {}


async def cancel(call: Call) -> JsonObject:
    task = await _own_task(call)
    # ext-tasks, "Task Cancellation": an acknowledgment says nothing of the task, which may have ended already.
    await call.server.tasks.cancel(task.id)
    return {}


async def _own_task(call: Call) -> Task:
    """The task that the request names.

    Raises:
        RpcError: -32602, there is no such task for this caller.
    """
    found = await own_task(params.string(call.params, "taskId"), call)
    if found is None:
        raise RpcError(ErrorCode.INVALID_PARAMS, "Task not found")
    return found


async def own_task(task_id: str, call: Call) -> Task | None:
    """The task with this id, if the caller may know of it."""
    task, caller = await call.server.tasks.get(task_id), call.caller
    return task if task is not None and task.belongs_to(caller.identity.subject_key, view=caller.view) else None


def _answered(task: Task, responses: dict[str, Json], call: Call) -> Task | None:
    """The task with those answers that it waits for; None if none of them is one.

    Raises:
        MalformedAnswerError: an answer does not fit its question.
    """
    if task.status is not TaskStatus.INPUT_REQUIRED:
        return None
    questions = open_questions(task.questions)
    taken = {key: responses[key] for key in questions if key in responses}
    if not taken:
        return None
    for key, answer in taken.items():
        check_answer(key, questions[key], answer)
    remaining = {key: question for key, question in questions.items() if key not in taken}
    memory = _with_answers(decode_memory(task.memory), taken)
    return replace(
        task,
        status=TaskStatus.INPUT_REQUIRED if remaining else TaskStatus.WORKING,
        questions=_wire(remaining) if remaining else b"",
        memory=encode_memory(memory),
        caller=replace(task.caller, identity=call.caller.identity),  # whose rights may be others by now
    )


def _with_answers(memory: TaskMemory, taken: dict[str, Json]) -> TaskMemory:
    prefix = key_prefix(memory.round)
    return replace(memory, answers=memory.answers | {key.removeprefix(prefix): taken[key] for key in taken})


def _wire(questions: dict[str, InputRequest]) -> bytes:
    return jsonrpc.encode({key: question.wire for key, question in questions.items()})
