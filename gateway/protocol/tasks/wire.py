"""Converts tasks to the JSON objects that clients receive (ext-tasks 2026, "Tasks")."""

from typing import Final

from msgspec.structs import replace

from gateway import exact_json
from gateway.errors import MissingCapabilityError
from gateway.json_types import Json, JsonObject
from gateway.rfc3339 import timestamp
from gateway.tasks.task import Task, TaskStatus
from gateway.wire.revisions import MODERN

TASKS: Final = "io.modelcontextprotocol/tasks"

_PAYLOAD: Final = {TaskStatus.COMPLETED: "result", TaskStatus.FAILED: "error"}


def declares_tasks(client_capabilities: JsonObject, revision: str) -> bool:
    """Return whether the client has declared the tasks extension and uses a modern revision."""
    extensions = client_capabilities.get("extensions")
    return revision in MODERN and isinstance(extensions, dict) and TASKS in extensions


def missing_extension() -> MissingCapabilityError:
    return MissingCapabilityError({"extensions": {TASKS: {}}})


def created(task: Task, *, now: float) -> dict[str, Json]:
    """Return a `CreateTaskResult`. Its status is always `working`, because this type has no members for an outcome."""
    begun = task if task.status is TaskStatus.WORKING else replace(task, status=TaskStatus.WORKING, message="")
    return {"resultType": "task", **_metadata(begun, now)}


def detailed(task: Task, *, now: float) -> dict[str, Json]:
    """Return a `DetailedTask` for `tasks/get` and `notifications/tasks`."""
    wire = _metadata(task, now)
    if task.status is TaskStatus.INPUT_REQUIRED:
        wire["inputRequests"] = exact_json.loads(task.questions)
    elif (payload := _PAYLOAD.get(task.status)) is not None:
        wire[payload] = exact_json.loads(task.outcome)
    return wire


def _metadata(task: Task, now: float) -> dict[str, Json]:
    created_at = timestamp(task.created)
    wire: dict[str, Json] = {
        "taskId": task.id,
        "status": task.status.value,
        "createdAt": created_at,
        "lastUpdatedAt": created_at if task.updated == task.created else timestamp(task.updated),
        "ttlMs": task.ttl_ms,
        "pollIntervalMs": task.poll_interval_ms(now),
    }
    if task.message:
        wire["statusMessage"] = task.message
    return wire
