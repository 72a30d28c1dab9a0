"""The report of tasks for operators: what runs, for whom and how long, but nothing of what was said."""

from collections.abc import Callable
from typing import Final

from gateway.json_types import Json, JsonObject
from gateway.protocol.tasks.task_requester import open_questions
from gateway.protocol.tasks.wire import timestamp
from gateway.tasks.runner import TaskRunner
from gateway.tasks.task import Task, TaskStatus

MAX_LISTED: Final = 1000
_CANCELLED: Final = "Cancelled by the server's operator"


def task_counts(runner: TaskRunner) -> dict[str, Json]:
    """The number of tasks by status, without those that none has."""
    return {str(status): count for status, count in runner.store.counts.items() if count}


class TaskReport:
    """The newest tasks, and each by its id."""

    def __init__(self, runner: TaskRunner, *, mask: Callable[[str], str]) -> None:
        self._runner: Final = runner
        self._mask: Final = mask

    async def listed(self) -> JsonObject:
        tasks = await self._runner.newest(MAX_LISTED)
        return {"tasks": [self._facts(task) for task in tasks], "counts": task_counts(self._runner)}

    async def shown(self, task_id: str) -> JsonObject | None:
        task = await self._runner.get(task_id)
        if task is None:
            return None
        waits_for: dict[str, Json] = {}
        if task.status is TaskStatus.INPUT_REQUIRED:
            waits_for = {key: question.method for key, question in open_questions(task.questions).items()}
        return {
            **self._facts(task),
            "realm": task.caller.identity.realm or None,
            "binding": task.caller.binding,
            "ttlMs": task.ttl_ms,
            "restartsLeft": task.restarts,
            "waitsFor": waits_for,
            "resultBytes": len(task.outcome),
        }

    async def cancel(self, task_id: str) -> JsonObject | None:
        await self._runner.cancel(task_id, _CANCELLED)
        return await self.shown(task_id)

    def _facts(self, task: Task) -> dict[str, Json]:
        return {
            "taskId": task.id,
            "tool": task.tool,
            "status": task.status.value,
            "statusMessage": self._mask(task.message) or None,
            "createdAt": timestamp(task.created),
            "lastUpdatedAt": timestamp(task.updated),
            "expiresAt": timestamp(task.expires),
            "principal": task.caller.identity.principal,
            "address": task.caller.address or None,
        }
