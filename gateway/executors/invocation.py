"""The seam between what was asked and how it is done: an `Invocation` goes in, an `Outcome` comes out."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from secrets import token_hex
from types import MappingProxyType
from typing import Final, Protocol

from gateway.executors.clock import Clock
from gateway.executors.trace import UNTRACED, Trace
from gateway.json_types import Json, JsonObject, empty
from gateway.plugin import Context


class Slot(Protocol):
    """The caller's place among those that may run at once."""

    def hold_until(self, task: asyncio.Task[None]) -> None:
        """Keep the place taken, after the call has been answered, until `task` (clean-up) is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One call, ready to run: validated, with defaults filled in."""

    arguments: JsonObject
    context: Context
    clock: Clock
    slot: Slot
    caller: str
    """Whom outputs and caches belong to: the principal, or what stands for it without authentication."""
    call_id: str = field(default_factory=lambda: token_hex(6))
    """Stands in the log lines of the call, and in what its caller hears of a failure whose details are there alone."""
    trace: Trace = UNTRACED
    headers: Mapping[str, str] = field(default_factory=empty)
    """Header fields of the caller's HTTP request, names in lower case; empty on stdio."""

    @property
    def deadline(self) -> float:
        """When it must be answered: seconds on the event loop's clock."""
        return self.clock.deadline


@dataclass(frozen=True, slots=True, kw_only=True)
class RawOutput:
    """Bytes that a child wrote or a server answered, still to be shaped."""

    data: bytes
    media_type: str | None = None
    """As the backend said it, parameters included; None from a child."""
    is_blob: bool = False
    """Whether these are bytes by declaration, and no text even where they could be read as one."""
    omitted: int = 0
    """Bytes that were dropped between the first and the second half of `data`, because there were too many."""
    variables: JsonObject = field(default_factory=empty)
    """Names of the place in `output.template`: `exit_code`, `stderr` or `status`, `headers`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A structured value from a function: becomes JSON text, and structured content unless it is a bare scalar."""

    value: Json
    size: int = field(default=0, compare=False)
    """Bytes of its JSON, about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Finished content blocks, in the wire form of 2026-07-28."""

    content: tuple[JsonObject, ...]
    is_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The backend ran and failed; the text says how, for the model."""

    text: str


Outcome = RawOutput | Value | Blocks | Failure


def size_of(outcome: Outcome) -> int:
    """How much there is to shape: bytes or characters, about."""
    match outcome:
        case RawOutput(data=data):
            return len(data)
        case Value(size=size):
            return size
        case Blocks(content=content):
            return sum(len(block.get("text", "")) for block in content)
        case Failure(text=text):
            return len(text)


ABSENT: Final[Json] = object()
"""No structured content at all, where None would be JSON's null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """An outcome after output shaping: what `tools/call` answers, before the revision's wire form."""

    content: Sequence[JsonObject]
    structured: Json = ABSENT
    is_error: bool = False


class AwaitingInput(BaseException):
    """Ends a call that cannot go on before its client has answered.

    Not an `Exception`, so that no `except Exception` of an author takes it for a failure. Whoever catches it even so
    changes nothing: see `RetryAsker`.
    """

    def __init__(self, result: JsonObject = MappingProxyType({})) -> None:
        super().__init__("the call waits for its client's answers")
        self.result = result
        """What the request is answered with, once the call has ended."""


class Executor(Protocol):
    """Carries out a primitive's work."""

    async def execute(self, invocation: Invocation) -> Outcome:
        """Do it, and answer by the invocation's deadline.

        Raises:
            ExecutionError: it could not be done, or not in time; the text is for the model.
            RpcError: a plugin raised `ProtocolError`.
        """
