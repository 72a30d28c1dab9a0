"""Describes MCP tasks for operators. Input requests are only included if the console is served."""

from typing import Final

from gateway.config.secrets.redactor import LiveRedactor
from gateway.json_types import Json, JsonObject
from gateway.protocol.tasks.task_requester import open_questions
from gateway.rfc3339 import timestamp
from gateway.tasks.runner import TaskRunner
from gateway.tasks.task import Task, TaskStatus

_MAX_TASKS: Final = 1000
_CANCELLED: Final = "Cancelled by the server's operator"


def task_counts(runner: TaskRunner) -> dict[str, Json]:
    return {str(status): count for status, count in runner.store.counts.items() if count}


class TaskReport:
    def __init__(self, runner: TaskRunner, *, redactor: LiveRedactor, is_for_console: bool) -> None:
        self._runner: Final = runner
        self._mask: Final = redactor.text
        self._is_for_console: Final = is_for_console

    async def listed(self) -> JsonObject:
        tasks = await self._runner.newest(_MAX_TASKS)
        return {"tasks": [self._facts(task) for task in tasks], "counts": task_counts(self._runner)}

    async def shown(self, task_id: str) -> JsonObject | None:
        task = await self._runner.get(task_id)
        if task is None:
            return None
        asked = open_questions(task.questions) if task.status is TaskStatus.INPUT_REQUIRED else {}
        # Questions contain call content, which only console users may see.
        in_console: dict[str, Json] = {}
        if self._is_for_console:
            in_console["questions"] = [
                {"key": key, "method": question.method, "message": self._mask(str(question.params.get("message", "")))}
                for key, question in asked.items()
            ]
        return {
            **self._facts(task),
            "realm": task.caller.identity.realm or None,
            "binding": task.caller.binding,
            "ttlMs": task.ttl_ms,
            "restartsLeft": task.restarts,
            "waitsFor": {key: question.method for key, question in asked.items()},
            "resultBytes": len(task.outcome),
            **in_console,
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
