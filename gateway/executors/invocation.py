"""The interface of executors: `Invocation`, `Outcome` and `Explanation`."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import msgspec

from gateway.access.identity import Subject
from gateway.deadline import Deadline
from gateway.json_types import ABSENT, Json, JsonObject, empty
from gateway.plugin import Context
from gateway.telemetry.observer import ClientTerms
from gateway.telemetry.trace import Trace
from gateway.threads import Permit


class InvocationSender(Protocol):
    @property
    def owner_key(self) -> str:
        """The owner of stored outputs and cached outcomes: the principal, or a substitute without authentication."""

    @property
    def subject(self) -> Subject:
        """The user on whose behalf requests to other services are authenticated."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Header fields of the caller's HTTP request, with lower-case names. Empty on stdio."""


class InvokedCall(Protocol):
    @property
    def id(self) -> str:
        """Identifies the call in log lines, and in errors whose details are only logged."""

    @property
    def caller(self) -> InvocationSender: ...
    @property
    def terms(self) -> ClientTerms: ...
    @property
    def rights(self) -> Hashable:
        """The caller's access rights. Two calls with equal rights can use the same primitives.

        The principal is not enough, because its tokens can have different rights.
        """

    @property
    def client_key(self) -> str:
        """Identifies the session, or the principal if there is no session. Empty if unknown."""

    @property
    def wants_progress(self) -> bool: ...
    @property
    def output_seconds(self) -> float | None:
        """Seconds for which a long output is stored. None for the default."""

    @property
    def announce(self) -> Callable[[str, JsonObject], object] | None:
        """Queues a notification under a key. Also works after the end of the call. None without a session."""


class Invocation(Protocol):
    """One run of a primitive. The arguments are validated and include defaults."""

    @property
    def arguments(self) -> JsonObject: ...
    @property
    def variables(self) -> JsonObject:
        """The arguments, and `caller` if a template of the primitive reads it."""

    @property
    def caller_values(self) -> bytes:
        """A digest of the caller's facts that the primitive's templates read. Empty if they read none."""

    @property
    def context(self) -> Context: ...
    @property
    def deadline(self) -> Deadline: ...

    @property
    def permit(self) -> Permit: ...
    @property
    def call(self) -> InvokedCall: ...
    @property
    def trace(self) -> Trace: ...
    def narrowed(self, *, arguments: JsonObject, deadline: Deadline) -> "Invocation":
        """Return the same call with other arguments and an earlier deadline."""


class RawOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Output of a child process or body of a response, before shaping."""

    data: bytes
    media_type: str | None = None
    """The media type sent by the backend, with parameters. None for a child process."""
    is_blob: bool = False
    """Whether the output is declared to be binary, even if it is valid text."""
    omitted: int = 0
    """Bytes dropped from the middle of `data`."""
    variables: JsonObject = msgspec.field(default_factory=empty)
    """Variables for `output.template`: `exit_code` and `stderr`, or `status` and `headers`."""
    success: str | None = None
    """The text of a result without content, if the backend reports success without content."""
    note: str | None = None
    """A text for the model after the output: what is missing, and why."""

    @property
    def size(self) -> int:
        return len(self.data)


# Not a `msgspec.Struct`, because the size must not be compared.
@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A function's return value. Becomes JSON text, and structured content unless it is a scalar."""

    value: Json
    size: int = field(default=0, compare=False)
    """Approximate size of the JSON in bytes."""
    text: str | None = None
    """The text returned with the structured content. None to use the JSON."""


class Blocks(msgspec.Struct, frozen=True, kw_only=True):
    """Content blocks in the wire format of 2026-07-28."""

    content: tuple[JsonObject, ...]
    is_error: bool = False

    @property
    def size(self) -> int:
        return _content_size(self.content)


class Relayed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an upstream server: tool content, resource contents or prompt messages."""

    content: tuple[JsonObject, ...]
    structured: Json = ABSENT
    is_error: bool = False
    meta: JsonObject = msgspec.field(default_factory=empty)
    description: str | None = None

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
"""Every outcome has a `size`: approximate bytes or characters."""


def _content_size(content: Sequence[JsonObject]) -> int:
    text = sole_text(content)
    return text_size(content) if text is None else len(text)


def sole_text(content: Sequence[JsonObject]) -> str | None:
    """Return the text if the content is a single plain text block, else None."""
    if len(content) != 1 or len(block := content[0]) != 2 or block.get("type") != "text":
        return None
    text = block.get("text")
    return text if isinstance(text, str) else None


def text_size(value: Json, *, enough: float = math.inf) -> int:
    """Count the characters of all strings and member names in a value. Stops at about `enough`."""
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
    """The result of `tools/call` after output shaping, before its wire format."""

    content: Sequence[JsonObject]
    structured: Json = ABSENT
    is_error: bool = False
    meta: JsonObject = empty()


class AwaitingInput(BaseException):
    """Ends a call that must wait for input from its client.

    Derived from BaseException, so that `except Exception` in a plugin does not catch it. See `MrtrRequester`.
    """

    def __init__(self, result: JsonObject = MappingProxyType({})) -> None:
        super().__init__("the call waits for its client's answers")
        self.result = result


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Describes what a run would do. Secrets are not masked yet.

    Executors build the description with the same code that runs, so that both agree.
    """

    does: str
    """Follows the name of the primitive in a sentence: "runs a command"."""
    facts: Mapping[str, Json] = msgspec.field(default_factory=empty)
    """Facts by name, most important first. None if not applicable."""


class Explainable(Protocol):
    def explain(self, invocation: Invocation) -> Explanation:
        """Describe what `execute` or `render` would do, without doing it.

        Raises:
            ExecutionError: the arguments are rejected before the run would start.
        """


class Executor(Explainable, Protocol):
    async def execute(self, invocation: Invocation) -> Outcome:
        """Run the backend until the deadline.

        Raises:
            ExecutionError: the backend failed or exceeded the deadline. The text is for the model.
            RpcError: a plugin raised `ProtocolError`.
        """
