"""The record of a task: all that is needed to answer for it, and to run its tool again; and one run of its work.

Values; no I/O.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway import exact_json
from gateway.access.identity import Identity
from gateway.errors import ErrorCode
from gateway.json_types import Json

STOPPED: Final = "the server that ran it stopped"
"""The reason for which a task has failed whose process died."""


class TaskStatus(StrEnum):
    """A task's status, as the extension calls it."""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


UNFINISHED: Final = frozenset({TaskStatus.WORKING, TaskStatus.INPUT_REQUIRED})


class TaskCaller(msgspec.Struct, frozen=True, kw_only=True):
    """The sender of the call that became a task. Header fields are not kept: they may hold secrets."""

    identity: Identity
    binding: str
    address: str
    counted_as: str
    """The key by which limits count the caller."""
    view: str | None = None
    """The view that the call was sent to."""
    revision: str


class TaskMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The answers and results that a function has so far, so that it can run again from its start."""

    answers: dict[str, Json] = {}
    """By the author's key, the client's answers."""
    results: dict[str, Json] = {}
    """By key, what `once` has brought."""
    definition: str = ""
    """The version of the tool that asked; another one asks again."""
    round: int = 0
    """How often it has asked everything again: keys of questions are never used twice."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One task. What is JSON of somebody else is kept as its bytes."""

    id: str
    tool: str
    owner: str | None
    """`Identity.subject_key` of the caller, who alone may know of it; None: whoever knows the id."""
    caller: TaskCaller
    call: bytes
    """The request: an object with `params`, `client` and `capabilities`."""
    created: float
    """Seconds since the epoch, as all times here."""
    updated: float
    ttl_ms: int
    poll_ms: int
    restarts: int
    """How often it may still be begun again after its process died."""
    runner: str = ""
    """The process that runs it; empty: none does."""
    version: int = 0
    """Grows with each change, so that a write by somebody who knows an older one is refused."""
    status: TaskStatus = TaskStatus.WORKING
    message: str = ""
    """A line for people: progress, or why it failed."""
    questions: bytes = b""
    """With `input_required`: the open questions, an object by key as the client sees it."""
    memory: bytes = b""
    """`TaskMemory`, encoded."""
    outcome: bytes = b""
    """The result of a completed task, the JSON-RPC error of a failed one."""

    def belongs_to(self, owner: str | None, *, view: str | None) -> bool:
        """Whether a caller may know of it."""
        return self.owner == owner and self.caller.view == view

    @property
    def expires(self) -> float:
        return self.created + self.ttl_ms / 1000

    @property
    def is_finished(self) -> bool:
        return self.status not in UNFINISHED

    def poll_interval_ms(self, now: float) -> int:
        """A tenth of the task's age, from `poll_ms` to ten times that."""
        age_ms = int((now - self.created) * 1000)
        # ext-tasks, "Task Polling": the interval may change. The older a task is, the less a late answer matters.
        return min(max(self.poll_ms, age_ms // 10), 10 * self.poll_ms)


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one run of a task: with a result, an error, or questions. The fields are those of `Task`."""

    status: TaskStatus
    message: str = ""
    questions: bytes = b""
    memory: bytes = b""
    outcome: bytes = b""


class TaskRun:
    """One run of a task, as its work sees it."""

    __slots__ = ("_on_message", "caller", "message", "message_at", "task")

    def __init__(self, task: Task, *, on_message: Callable[["TaskRun"], None], caller: object = None) -> None:
        self.task = task
        self.caller: Final = caller
        """Who has just answered the last question, with a token and header fields, which are not stored."""
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


# JSON, and no MessagePack, which has no integers of more than 64 bits: clients may answer with longer ones.
_MEMORY_ENCODER: Final = msgspec.json.Encoder()
_MEMORY_DECODER: Final = msgspec.json.Decoder(TaskMemory)
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Task)


def encode_memory(memory: TaskMemory) -> bytes:
    return _MEMORY_ENCODER.encode(memory)


def decode_memory(encoded: bytes) -> TaskMemory:
    return _MEMORY_DECODER.decode(encoded) if encoded else TaskMemory()


def encode_task(task: Task) -> bytes:
    return _ENCODER.encode(task)


def decode_task(encoded: bytes) -> Task:
    return _DECODER.decode(encoded)


def read_task(encoded: bytes) -> Task | None:
    """A task as it is stored; None if its record is damaged, or is one of a newer version of the gateway."""
    try:
        return decode_task(encoded)
    except msgspec.DecodeError:
        return None
