"""The interface of executors: `Invocation`, `Outcome` and `Explanation`."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import msgspec

from gateway.access.subject import Subject
from gateway.deadline import Deadline
from gateway.json_types import ABSENT, Json, JsonObject, empty
from gateway.permit import Permit
from gateway.plugin import Context
from gateway.telemetry.observer import ClientTerms
from gateway.telemetry.trace import Trace


class InvocationSender(Protocol):
    """The sender of a call."""

    @property
    def owner_key(self) -> str:
        """The owner of outputs and cached outcomes: the principal, or a substitute without authentication."""

    @property
    def subject(self) -> Subject:
        """The caller that requests to other services are authenticated as."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Header fields of the caller's HTTP request, names in lower case; empty on stdio."""


class InvokedCall(Protocol):
    """The call that an invocation belongs to."""

    @property
    def id(self) -> str:
        """Part of the log lines of the call, and of errors whose details are only logged."""

    @property
    def caller(self) -> InvocationSender: ...
    @property
    def terms(self) -> ClientTerms: ...
    @property
    def rights(self) -> Hashable:
        """The access rights of the caller: equal for two calls only if both may use the same.

        A principal may have many tokens, so its name is not enough.
        """

    @property
    def client_key(self) -> str:
        """Identifies the client: its session, or its principal without a session; empty if unknown."""

    @property
    def wants_progress(self) -> bool: ...
    @property
    def output_seconds(self) -> float | None:
        """Seconds for which an output is kept that is too long for the result; None for the default."""

    @property
    def announce(self) -> Callable[[str, JsonObject], object] | None:
        """Queues a notification under a key, even after the end of the call; None without a session."""


class Invocation(Protocol):
    """One run of a primitive: arguments are validated and have defaults."""

    @property
    def arguments(self) -> JsonObject: ...
    @property
    def variables(self) -> JsonObject:
        """The arguments, and `caller` if a template of the primitive reads it."""

    @property
    def caller_values(self) -> bytes:
        """A digest of the caller's facts that the primitive's templates read; empty if they read none."""

    @property
    def context(self) -> Context: ...
    @property
    def deadline(self) -> Deadline:
        """The point in time by which it must be answered."""

    @property
    def permit(self) -> Permit: ...
    @property
    def call(self) -> InvokedCall: ...
    @property
    def trace(self) -> Trace: ...
    def narrowed(self, *, arguments: JsonObject, deadline: Deadline) -> "Invocation":
        """Return the same call with other arguments and less time."""


class RawOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Output of a child or content of a response, before shaping."""

    data: bytes
    media_type: str | None = None
    """As sent by the backend, with parameters. None for a child."""
    is_blob: bool = False
    """Whether these are bytes by declaration, even if they could be read as text."""
    omitted: int = 0
    """Bytes that were dropped between the two halves of `data`."""
    variables: JsonObject = msgspec.field(default_factory=empty)
    """Variables for `output.template`: `exit_code`, `stderr` or `status`, `headers`."""
    success: str | None = None
    """The text for a result without content, if the backend considers it a success."""

    @property
    def size(self) -> int:
        return len(self.data)


# A dataclass, because a `msgspec.Struct` compares all fields, including the size.
@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A value of a function. It becomes JSON text, and structured content unless it is a scalar."""

    value: Json
    size: int = field(default=0, compare=False)
    """Approximate bytes of its JSON."""
    text: str | None = None
    """The text beside the structured content, or None for its JSON."""


class Blocks(msgspec.Struct, frozen=True, kw_only=True):
    """Content blocks in the wire form of 2026-07-28."""

    content: tuple[JsonObject, ...]
    is_error: bool = False

    @property
    def size(self) -> int:
        return _content_size(self.content)


class Relayed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of another server: tool content, resource contents or prompt messages."""

    content: tuple[JsonObject, ...]
    structured: Json = ABSENT
    is_error: bool = False
    meta: JsonObject = msgspec.field(default_factory=empty)
    """Members of the result's `_meta`."""
    description: str | None = None
    """The description of a prompt."""

    @property
    def size(self) -> int:
        return _content_size(self.content) + (0 if self.structured is ABSENT else text_size(self.structured))


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The backend ran and failed. The text is for the model."""

    text: str

    @property
    def size(self) -> int:
        return len(self.text)


Outcome = RawOutput | Value | Blocks | Relayed | Failure
"""Each has an approximate `size` in bytes or characters."""


def _content_size(content: Sequence[JsonObject]) -> int:
    text = sole_text(content)
    return text_size(content) if text is None else len(text)


def sole_text(content: Sequence[JsonObject]) -> str | None:
    """Return the text of content that consists of one plain text block, else None."""
    if len(content) != 1 or len(block := content[0]) != 2 or block.get("type") != "text":
        return None
    text = block.get("text")
    return text if isinstance(text, str) else None


def text_size(value: Json, *, enough: float = math.inf) -> int:
    """Count the characters of all strings in a value, including names of members, up to about `enough`."""
    # Not recursive, because JSON can be nested deeper than Python's stack.
    size, waiting = 0, [value]
    while waiting and size <= enough:
        item = waiting.pop()
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, dict | Mapping):  # a dict is recognized faster
            waiting += item.keys()
            waiting += item.values()
        elif isinstance(item, list | tuple):
            waiting += item
        else:
            size += 1
    return size


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """An outcome after output shaping: the result of `tools/call` before its wire form."""

    content: Sequence[JsonObject]
    structured: Json = ABSENT
    is_error: bool = False
    meta: JsonObject = empty()
    """Members of the result's `_meta`."""


class AwaitingInput(BaseException):
    """Ends a call that must wait for its client's answers.

    Not an `Exception`, so that `except Exception` in a plugin does not catch it. Catching it has no effect: see
    `MrtrRequester`.
    """

    def __init__(self, result: JsonObject = MappingProxyType({})) -> None:
        super().__init__("the call waits for its client's answers")
        self.result = result
        """The result of the request."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a run that is not executed. Secrets are not masked yet.

    Each executor explains itself with the code that also runs, so that both agree.
    """

    does: str
    """Follows the name of the primitive in a sentence: "runs a command"."""
    facts: Mapping[str, Json] = msgspec.field(default_factory=empty)
    """By name, most important first. None if not applicable."""


class Explainable(Protocol):
    """An executor or the messages of a prompt."""

    def explain(self, invocation: Invocation) -> Explanation:
        """Describe what `execute` or `render` would do, without doing it.

        Raises:
            ExecutionError: as `execute` or `render` would raise before they start.
        """


class Executor(Explainable, Protocol):
    """Runs the backend of a primitive."""

    async def execute(self, invocation: Invocation) -> Outcome:
        """Run the backend until the invocation's deadline.

        Raises:
            ExecutionError: the backend failed or exceeded the deadline. The text is for the model.
            RpcError: a plugin raised `ProtocolError`.
        """
