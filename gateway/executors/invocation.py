"""The interface of executors: an `Invocation` goes in, an `Outcome` comes out; or an `Explanation`."""

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
    """Bytes that a child wrote or a server answered, still to be shaped."""

    data: bytes
    media_type: str | None = None
    """As the backend said it, parameters included; None from a child."""
    is_blob: bool = False
    """Whether these are bytes by declaration, and no text even where they could be read as one."""
    omitted: int = 0
    """Bytes that were dropped between the first and the second half of `data`, because there were too many."""
    variables: JsonObject = msgspec.field(default_factory=empty)
    """Names of the place in `output.template`: `exit_code`, `stderr` or `status`, `headers`."""
    success: str | None = None
    """Text of a result without content, where its backend says that this is a success."""

    @property
    def size(self) -> int:
        return len(self.data)


# A dataclass: a `msgspec.Struct` compares all its fields, and two values are equal whatever is known of their size.
@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A structured value from a function: becomes JSON text, and structured content unless it is a bare scalar."""

    value: Json
    size: int = field(default=0, compare=False)
    """Bytes of its JSON, about."""
    text: str | None = None
    """What is shown beside the structured content; None: its JSON."""


class Blocks(msgspec.Struct, frozen=True, kw_only=True):
    """Finished content blocks, in the wire form of 2026-07-28."""

    content: tuple[JsonObject, ...]
    is_error: bool = False

    @property
    def size(self) -> int:
        return _content_size(self.content)


class Relayed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of another server: content blocks of a tool, contents of a resource, or messages of a prompt."""

    content: tuple[JsonObject, ...]
    structured: Json = ABSENT
    is_error: bool = False
    meta: JsonObject = msgspec.field(default_factory=empty)
    """Members of the result's `_meta`."""
    description: str | None = None
    """Of a prompt."""

    @property
    def size(self) -> int:
        return _content_size(self.content) + (0 if self.structured is ABSENT else text_size(self.structured))


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The backend ran and failed; the text says how, for the model."""

    text: str

    @property
    def size(self) -> int:
        return len(self.text)


Outcome = RawOutput | Value | Blocks | Relayed | Failure
"""Each tells its `size`: bytes or characters, about."""


def _content_size(content: Sequence[JsonObject]) -> int:
    text = sole_text(content)
    return text_size(content) if text is None else len(text)


def sole_text(content: Sequence[JsonObject]) -> str | None:
    """Return the text of content that is one text block and nothing else, as most is; None of any other."""
    # A block with annotations or `_meta` is more than its text.
    if len(content) != 1 or len(block := content[0]) != 2 or block.get("type") != "text":
        return None
    text = block.get("text")
    return text if isinstance(text, str) else None


def text_size(value: Json, *, enough: float = math.inf) -> int:
    """Characters of all strings within `value` (texts, base64, names of members), counted until there are `enough`."""
    # A list in place of recursion: JSON may be nested deeper than Python's stack is.
    size, waiting = 0, [value]
    while waiting and size <= enough:
        item = waiting.pop()
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, dict | Mapping):  # a dict is told at once, a mapping by asking its class
            waiting += item.keys()
            waiting += item.values()
        elif isinstance(item, list | tuple):
            waiting += item
        else:
            size += 1
    return size


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """An outcome after output shaping: what `tools/call` answers, before the revision's wire form."""

    content: Sequence[JsonObject]
    structured: Json = ABSENT
    is_error: bool = False
    meta: JsonObject = empty()
    """Members of the result's `_meta`."""


class AwaitingInput(BaseException):
    """Ends a call that cannot go on before its client has answered.

    Not an `Exception`, so that no `except Exception` of an author takes it for a failure. Catching it changes
    nothing: see `MrtrRequester`.
    """

    def __init__(self, result: JsonObject = MappingProxyType({})) -> None:
        super().__init__("the call waits for its client's answers")
        self.result = result
        """What the request is answered with, once the call has ended."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Describes what a backend would do. Secrets are not masked yet: the code that shows it masks them.

    Why each executor explains itself: the explanation comes out of the code that builds what runs, so both agree.
    """

    does: str
    """The sentence that begins with the primitive's name: "runs a command"."""
    facts: Mapping[str, Json] = msgspec.field(default_factory=empty)
    """By name, the most important first; None: it does not apply."""


class Explainable(Protocol):
    """An executor, or a prompt's messages, that can say what it would do."""

    def explain(self, invocation: Invocation) -> Explanation:
        """Say what `execute` or `render` would do, and do nothing of it.

        Raises:
            ExecutionError: it could not be done; the same that they would raise before they begin.
        """


class Executor(Explainable, Protocol):
    """Carries out a primitive's work."""

    async def execute(self, invocation: Invocation) -> Outcome:
        """Do it, and answer by the invocation's deadline.

        Raises:
            ExecutionError: it could not be done, or not in time; the text is for the model.
            RpcError: a plugin raised `ProtocolError`.
        """
