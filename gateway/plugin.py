"""What a tool author imports, and all of it: the call's context, content classes, and two exceptions.

    from gateway.plugin import Context, Image, ToolError

A plugin function's parameters become the tool's input schema, its return annotation the output schema and its docstring
the description. A parameter annotated `Context` (async functions) or `SyncContext` (plain functions, run in a thread)
receives the context of the call.

**Questions to the client** (`elicit`, `elicit_url`, `sample`, `list_roots`, `ask`) are written once for all revisions.
A client until 2025-11-25 answers while the function waits. One of 2026-07-28 answers by calling again, and then the
function runs again from its start, with the answer at hand:

- Ask first, act afterwards: what comes before an unanswered question is done again with each try. A step that must not
  be, or that takes long, goes into `once`.
- Each question has a key, the same in every try, and a key has one question. Do not make keys of what changes (times,
  random numbers); `f"file {name}"` is fine.
- Take the same way in every try. What the function does may depend on its arguments, on answers, and on what `once` has
  kept; not on the time of day.
- Questions that do not depend on each other go out together: `ask`, or `asyncio.gather` over `elicit` and the like.
- A question that is not answered ends the call. Code that catches everything (`except:`, `except BaseException`) around
  one only makes itself believe otherwise.
- Whether the client can be asked is in `client_capabilities`; one that cannot is refused for you.

The time that a question is open counts against `ask_timeout`, not against the tool's `timeout`, and others may use the
tool's place meanwhile.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

import aiohttp

from gateway.errors import ExecutionError, RpcError
from gateway.json_types import Json, JsonObject

__all__ = [
    "Answer",
    "Audio",
    "Context",
    "EmbeddedResource",
    "Image",
    "ListKind",
    "LogLevel",
    "ProtocolError",
    "ResourceLink",
    "Sample",
    "SyncContext",
    "Text",
    "ToolError",
]

T = TypeVar("T")

HttpClient = aiohttp.ClientSession

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
ListKind = Literal["tools", "prompts", "resources"]


class ToolError(ExecutionError):
    """Ends the call with `isError: true` and this text, which the model reads."""


class ProtocolError(RpcError):
    """Ends the call with a JSON-RPC error. Codes of your own lie outside -32768…-32000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Annotated:
    annotations: JsonObject | None = None
    """`audience`, `priority`, `lastModified` (2025-11-25 schema, Annotations)."""


@dataclass(frozen=True, slots=True)
class Text(_Annotated):
    text: str


@dataclass(frozen=True, slots=True)
class Image(_Annotated):
    data: bytes
    mime_type: str


@dataclass(frozen=True, slots=True)
class Audio(_Annotated):
    data: bytes
    mime_type: str


@dataclass(frozen=True, slots=True)
class EmbeddedResource(_Annotated):
    """A resource's contents inside a result: text, or bytes as a blob."""

    uri: str
    contents: str | bytes
    mime_type: str | None = None


@dataclass(frozen=True, slots=True)
class ResourceLink(_Annotated):
    """A resource that the client may read; it need not be listed."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None


Content = Text | Image | Audio | EmbeddedResource | ResourceLink


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the user did with an elicitation.

    `content` is what the form was filled in with, and fits its schema; it is there only where `action` is accept, and
    empty after a link. Declining is an answer: what becomes of it is for the function to decide.
    """

    action: Literal["accept", "decline", "cancel"]
    content: JsonObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What the client's model said."""

    text: str
    content: Json
    model: str
    stop_reason: str | None = None


class _Facts(Protocol):
    """What a call knows about its caller. Untrusted where it comes from the client."""

    @property
    def principal(self) -> str | None: ...
    @property
    def client(self) -> JsonObject: ...
    @property
    def client_capabilities(self) -> JsonObject: ...
    @property
    def protocol_version(self) -> str: ...
    @property
    def progress_token(self) -> str | int | None: ...
    @property
    def request_meta(self) -> JsonObject: ...
    @property
    def cancelled(self) -> bool: ...

    def notify_changed(self, kind: ListKind) -> None: ...
    def resource_updated(self, uri: str) -> None: ...
    def enable(self, kind: ListKind, name: str) -> None: ...
    def disable(self, kind: ListKind, name: str) -> None: ...


class Context(_Facts, Protocol):
    """The context of one call, for async functions."""

    @property
    def http(self) -> HttpClient:
        """The shared client; it hands the call's trace on. Private, loopback and link-local addresses are refused."""

    async def progress(self, value: float, total: float | None = None, message: str | None = None) -> None:
        """Tell how far the call is, if the client wants to know; values grow, and one that does not is left out."""

    async def log(self, level: LogLevel, data: Json, logger: str | None = None) -> None:
        """Send a log message to the client, if it asked for that level."""

    async def elicit(self, key: str, message: str, schema: JsonObject) -> Answer:
        """Ask the user to fill in a form. Never ask for secrets this way (client/elicitation).

        `schema` is an object of text, numbers, booleans and choices; nothing nested.
        """

    async def elicit_url(self, key: str, message: str, url: str) -> Answer:
        """Ask the user to open a page; `accept` says that they were willing to, not that they are done there."""

    async def sample(  # noqa: PLR0913 - the fields of sampling/createMessage
        self,
        key: str,
        messages: str | Sequence[JsonObject],
        *,
        system_prompt: str | None = None,
        max_tokens: int = 1000,
        temperature: float | None = None,
        stop_sequences: Sequence[str] | None = None,
        model_preferences: JsonObject | None = None,
        tools: Sequence[JsonObject] | None = None,
    ) -> Sample:
        """Ask the client's model, within what `limits.sampling` allows."""

    async def list_roots(self, key: str) -> Sequence[JsonObject]:
        """Ask for the directories that the client works in: `uri`, and `name` where it has one."""

    async def ask(self, requests: Mapping[str, JsonObject]) -> Mapping[str, Json]:
        """Ask several questions at once; each is `{"method": …, "params": …}`, each answer the client's result."""

    async def once(self, key: str, function: Callable[[], Awaitable[T]]) -> T:
        """What `function` returned when it first ran for this call; it must be JSON, and comes back as JSON has it.

        A client of 2026-07-28 carries the result from try to try: it can read it, and not change it, and 64 KiB is all
        that fits with the answers. So keep no secrets here, but a name by which you find them. A client that comes
        back without it makes the function run again.
        """

    async def close_stream(self, retry_ms: int | None = None) -> None: ...
    async def read_resource(self, uri: str) -> Sequence[JsonObject]:
        """The resource's contents, as this caller would read them (`ReadResourceResult.contents`)."""


class SyncContext(_Facts, Protocol):
    """The same context for plain functions: each method blocks the calling thread until it is done."""

    def progress(self, value: float, total: float | None = None, message: str | None = None) -> None: ...
    def log(self, level: LogLevel, data: Json, logger: str | None = None) -> None: ...
    def elicit(self, key: str, message: str, schema: JsonObject) -> Answer: ...
    def elicit_url(self, key: str, message: str, url: str) -> Answer: ...
    def sample(  # noqa: PLR0913 - the fields of sampling/createMessage
        self,
        key: str,
        messages: str | Sequence[JsonObject],
        *,
        system_prompt: str | None = None,
        max_tokens: int = 1000,
        temperature: float | None = None,
        stop_sequences: Sequence[str] | None = None,
        model_preferences: JsonObject | None = None,
        tools: Sequence[JsonObject] | None = None,
    ) -> Sample: ...
    def list_roots(self, key: str) -> Sequence[JsonObject]: ...
    def ask(self, requests: Mapping[str, JsonObject]) -> Mapping[str, Json]: ...
    def once(self, key: str, function: Callable[[], T]) -> T: ...
    def close_stream(self, retry_ms: int | None = None) -> None: ...
    def read_resource(self, uri: str) -> Sequence[JsonObject]: ...
