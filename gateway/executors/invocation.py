"""The interface of executors: `Invocation`, `Outcome` and `Explanation`."""

import math
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
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
        """Identifies the owner of stored outputs and cached outcomes: the caller, or the address if anonymous."""

    @property
    def subject(self) -> Subject:
        """The user on whose behalf the gateway sends authenticated requests to other services."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The header fields of the caller's HTTP request by lower-case name. The mapping is empty on stdio."""


class InvokedCall(Protocol):
    @property
    def id(self) -> str:
        """The correlation id of the call, for logs and for error messages without details."""

    @property
    def caller(self) -> InvocationSender: ...
    @property
    def terms(self) -> ClientTerms: ...
    @property
    def rights(self) -> Hashable:
        """The caller's access rights. Callers with equal rights can use the same tools, resources and prompts.

        Callers with the same principal can have different rights, because their tokens can differ.
        """

    @property
    def client_key(self) -> str:
        """The id of the session, or the principal if there is no session. Empty if the client is unknown."""

    @property
    def wants_progress(self) -> bool: ...
    @property
    def output_seconds(self) -> float | None:
        """The lifetime of a stored output in seconds. None selects the default lifetime."""

    @property
    def announce(self) -> Callable[[str, JsonObject], object] | None:
        """Queues a notification for the client, even after the call has ended. None without a session."""


class Invocation(Protocol):
    """One execution of a tool, resource or prompt. The arguments are validated and include defaults."""

    @property
    def arguments(self) -> JsonObject: ...
    @property
    def variables(self) -> JsonObject:
        """The variables of templates: the arguments, and `caller` if a template reads `caller`."""

    @property
    def caller_values(self) -> bytes:
        """A digest of the facts about the caller that templates read. Empty if the templates read no such facts."""

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
        """Return a copy of this invocation with the given arguments and an earlier deadline."""


class RawOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Unprocessed bytes: the output of a child process, the body of an HTTP response, or the content of a file."""

    data: bytes
    media_type: str | None = None
    """The media type that the backend sent, including parameters. None for a child process."""
    is_blob: bool = False
    """Whether the backend declares the output as binary, even if the bytes are valid text."""
    omitted: int = 0
    """The number of bytes that are missing in the middle of `data`."""
    variables: JsonObject = msgspec.field(default_factory=empty)
    """Variables for `output.template`: `exit_code` and `stderr`, or `status` and `headers`."""
    success: str | None = None
    """The result text if `data` is empty, such as the status line of a response without content."""
    note: str | None = None
    """A note after the output, which explains to the model why parts of the output are missing."""

    @property
    def size(self) -> int:
        return len(self.data)


# A dataclass instead of a `msgspec.Struct`, because comparisons must ignore the size.
@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A JSON value, such as a function's result. Objects and lists also become structured content."""

    value: Json
    size: int = field(default=0, compare=False)
    """Approximate size of the JSON in bytes."""
    text: str | None = None
    """The text that accompanies the structured content. None selects the JSON text of `value`."""


class Blocks(msgspec.Struct, frozen=True, kw_only=True):
    """Content blocks in the wire format of MCP 2026-07-28."""

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
    """The outcome of a backend that ran and failed. The text is for the model."""

    text: str

    @property
    def size(self) -> int:
        return len(self.text)


Outcome = RawOutput | Value | Blocks | Relayed | Failure
"""Every outcome has an approximate `size` in bytes or characters."""


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
    """Estimate the size of a value in characters. Counting stops once the size exceeds `enough`."""
    # Not recursive, because JSON can be nested deeper than Python's stack.
    size, waiting = 0, [value]
    while waiting and size <= enough:
        item = waiting.pop()
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, dict | Mapping):  # the check for `dict` is faster
            waiting += item.keys()
            waiting += item.values()
        elif isinstance(item, list | tuple):
            waiting += item
        else:
            size += 1
    return size


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `tools/call`, before conversion to the wire format."""

    content: Sequence[JsonObject]
    structured: Json = ABSENT
    is_error: bool = False
    meta: JsonObject = empty()


class AwaitingInput(BaseException):
    """Ends a call that needs input from its client. The client then repeats the call with the input.

    Derives from BaseException, so that `except Exception` in a plugin does not catch this exception.
    """

    def __init__(self, result: JsonObject = MappingProxyType({})) -> None:
        super().__init__("the call waits for its client's answers")
        self.result = result


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Describes what an executor would do. Secrets are not masked yet.

    Executors create explanations with the code that also runs calls, so that an explanation is always accurate.
    """

    does: str
    """A verb phrase that follows the name of the tool, resource or prompt, such as "runs a command"."""
    facts: Mapping[str, Json] = msgspec.field(default_factory=empty)
    """Facts by name, most important first. The value is None if a fact does not apply."""


class Executor(Protocol):
    def explain(self, invocation: Invocation) -> Explanation:
        """Describe what `execute` would do, without doing it.

        Raises:
            ExecutionError: `execute` would reject the arguments before running the backend.
        """

    async def execute(self, invocation: Invocation) -> Outcome:
        """Run the backend, at most until the deadline.

        Raises:
            ExecutionError: the backend failed or exceeded the deadline. The text is for the model.
            RpcError: a plugin raised `ProtocolError`.
        """


class FunctionExecutor(msgspec.Struct, frozen=True):
    """An executor that calls the given `explain` and `execute` functions."""

    explain: Callable[[Invocation], Explanation]
    execute: Callable[[Invocation], Coroutine[Json, Json, Outcome]]
