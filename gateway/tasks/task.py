from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import asdict, replace

from gateway import exact_json
from gateway.access.identity import Identity
from gateway.errors import ErrorCode
from gateway.json_types import Json

STOPPED: Final = "the server stopped before the task finished"


class TaskStatus(StrEnum):
    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


UNFINISHED: Final = frozenset({TaskStatus.WORKING, TaskStatus.INPUT_REQUIRED})


class TaskCaller(msgspec.Struct, frozen=True, kw_only=True):
    """The sender of the call. Header fields are not included, because they may contain secrets."""

    identity: Identity
    binding: str
    address: str
    is_local: bool = False
    """Whether the client ran on this machine, and did not connect through a reverse proxy."""
    counted_as: str
    view: str | None = None
    revision: str


class TaskMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The client's responses and the tool's results so far, for the next run of the tool."""

    answers: dict[str, Json] = {}
    """The client's responses, by the keys that the plugin uses."""
    results: dict[str, Json] = {}
    definition: str = ""
    """The version of the tool. If the version changes, all questions are sent to the client again."""
    round: int = 0
    """How often all questions were sent again. The number is part of the keys of questions."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    tool: str
    owner: str | None
    """`Identity.subject_key` of the caller. If None, anyone who knows the id can read the task."""
    caller: TaskCaller
    call: bytes
    """A JSON object with `params`, `client` and `capabilities`."""
    created: float
    """The creation time in seconds since the epoch."""
    updated: float
    ttl_ms: int
    poll_ms: int
    restarts: int
    """How often the task can still be restarted after its process has ended."""
    runner: str = ""
    version: int = 0
    """A number that increases with each change, for optimistic locking."""
    status: TaskStatus = TaskStatus.WORKING
    message: str = ""
    """A description of the progress or the reason for a failure, to show to users."""
    questions: bytes = b""
    """JSON object of the unanswered questions to the client by key, if the status is `input_required`."""
    memory: bytes = b""
    outcome: bytes = b""
    """The result of a completed task, or the JSON-RPC error of a failed task."""

    def belongs_to(self, owner: str | None, *, view: str | None) -> bool:
        return self.owner == owner and self.caller.view == view

    @property
    def expires(self) -> float:
        return self.created + self.ttl_ms / 1000

    @property
    def is_finished(self) -> bool:
        return self.status not in UNFINISHED

    def poll_interval_ms(self, now: float) -> int:
        """Return a tenth of the task's age in milliseconds, but at least `poll_ms` and at most ten times `poll_ms`."""
        age_ms = int((now - self.created) * 1000)
        return min(max(self.poll_ms, age_ms // 10), 10 * self.poll_ms)


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    status: TaskStatus
    message: str = ""
    questions: bytes = b""
    memory: bytes = b""
    outcome: bytes = b""


class TaskRun:
    __slots__ = ("_on_message", "caller", "message", "message_at", "task")

    def __init__(self, task: Task, *, on_message: Callable[["TaskRun"], None], caller: object = None) -> None:
        self.task = task
        self.caller: Final = caller
        """The sender of the last response, which is not stored because it may contain credentials."""
        self.message = task.message
        self.message_at = task.updated
        self._on_message: Final = on_message

    def say(self, message: str, *, at: float) -> None:
        """Report progress. The message is kept only in memory."""
        self.message, self.message_at = message, at
        self._on_message(self)


def ended(task: Task, ending: Ending) -> Task:
    return replace(task, **asdict(ending), runner="")


def left_behind(task: Task) -> Task:
    """Return a task whose process is stopping, ready for a restart, or failed if no restarts are left."""
    if task.restarts:
        return replace(task, restarts=task.restarts - 1, runner="", message="")
    ending = failed(STOPPED)
    return replace(task, status=ending.status, message=ending.message, outcome=ending.outcome, runner="")


def failed(message: str) -> Ending:
    error: Mapping[str, Json] = {"code": int(ErrorCode.INTERNAL_ERROR), "message": message}
    return Ending(status=TaskStatus.FAILED, message=message, outcome=exact_json.dumps(error))


# MessagePack lacks integers beyond 64 bits, which clients may send.
encode_memory: Final = msgspec.json.Encoder().encode
_MEMORY_DECODER: Final = msgspec.json.Decoder(TaskMemory)
encode_task: Final = msgspec.msgpack.Encoder().encode
decode_task: Final = msgspec.msgpack.Decoder(Task).decode


def decode_memory(encoded: bytes) -> TaskMemory:
    return _MEMORY_DECODER.decode(encoded) if encoded else TaskMemory()


def read_task(encoded: bytes) -> Task | None:
    """Decode a task. Return None if the record is damaged or from a newer version."""
    try:
        return decode_task(encoded)
    except msgspec.DecodeError:
        return None
