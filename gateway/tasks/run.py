"""One run of a task's work, how it ends, and what becomes of the task then. Values only."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway import exact_json
from gateway.errors import ErrorCode
from gateway.json_types import Json
from gateway.tasks.task import STOPPED, Task, TaskStatus


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one run of a task: with a result, an error, or questions. The fields are those of `Task`."""

    status: TaskStatus
    message: str = ""
    questions: bytes = b""
    memory: bytes = b""
    outcome: bytes = b""


class TaskRun:
    """One run of a task, as its work sees it."""

    __slots__ = ("_on_message", "message", "message_at", "task")

    def __init__(self, task: Task, *, on_message: Callable[["TaskRun"], None]) -> None:
        self.task = task
        self.message = task.message
        self.message_at = task.updated
        self._on_message: Final = on_message

    def say(self, message: str, *, at: float) -> None:
        """Tell people how far it is. Kept in memory: what is running is lost with its process anyway."""
        self.message, self.message_at = message, at
        self._on_message(self)


def ended(task: Task, ending: Ending) -> Task:
    """A task after a run of it that ended so."""
    return replace(
        task,
        status=ending.status,
        message=ending.message,
        questions=ending.questions,
        memory=ending.memory,
        outcome=ending.outcome,
        runner="",
    )


def left_behind(task: Task) -> Task:
    """A task whose process stops: to be begun again, or failed."""
    if task.restarts:
        return replace(task, restarts=task.restarts - 1, runner="", message="")
    ending = failed(STOPPED)
    return replace(task, status=ending.status, message=ending.message, outcome=ending.outcome, runner="")


def failed(message: str) -> Ending:
    error: Mapping[str, Json] = {"code": int(ErrorCode.INTERNAL_ERROR), "message": message}
    return Ending(status=TaskStatus.FAILED, message=message, outcome=exact_json.dumps(error))
