"""API for tools written in Python.

    from gateway.plugin import Context, Image, ToolError

The parameters of a function define the input schema of the tool. The return annotation defines the output schema, and
the docstring is the description. A parameter annotated `Context` (async functions) or `SyncContext` (plain functions,
which run in a thread) receives the context of the call.

Functions can return text, any JSON value, `bytes`, or content such as an `Image`, also in a list. Dataclasses and
pydantic models become objects. NaN is an error.

**Files**: a parameter annotated `bytes` is an input of `type: file`. Clients send base64 or a `data:` URI, and the
function receives the decoded content. To restrict files, use `input` in the YAML file or `Annotated[bytes,
Field(max_length=2**20, json_schema_extra={"media_types": ["image/*"]})]`.

**Questions to the client** (`elicit`, `elicit_url`, `sample`, `list_roots`, `ask`) have the same API for all protocol
revisions. Until 2025-11-25, clients answer while the function waits. Since 2026-07-28, clients answer by repeating the
call. The function then runs again from its start, with the answer available:

- Ask first, act afterwards: code before an unanswered question runs again with each retry. Wrap steps in `once` if they
  are slow or must not be repeated.
- Give each question a key that is the same in every retry, such as `f"file {name}"`. Do not use times or random
  numbers.
- Take the same path in every retry. The function can depend on its arguments, on answers and on results of `once`, but
  not on the time.
- To ask independent questions together, use `ask` or `asyncio.gather`.
- An unanswered question ends the run, even if the function catches all exceptions.
- `client_capabilities` shows which questions the client supports. Other questions fail automatically.

**Tasks**: a call of a tool with `task:` can outlive its request (`context.task`). Questions inside a task follow the
same rules: the function runs again from its start when the client has answered.

While a call waits for an answer, `ask_timeout` applies instead of the `timeout` of the tool. A waiting call does not
count against the concurrency limit of the tool.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from gateway.errors import ExecutionError, RpcError
from gateway.json_types import Json, JsonObject

if TYPE_CHECKING:  # aiohttp is slow to import, and few functions send requests
    from aiohttp import ClientSession

    HttpClient = ClientSession
    """The type of `Context.http`."""

__all__ = [
    "Answer",
    "Audio",
    "Caller",
    "Context",
    "EmbeddedResource",
    "Image",
    "ListKind",
    "LogLevel",
    "ProtocolError",
    "ResourceLink",
    "Sample",
    "SyncContext",
    "Task",
    "Text",
    "ToolError",
]

T = TypeVar("T")

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
"""A severity of RFC 5424, least severe first."""
ListKind = Literal["tools", "prompts", "resources"]
"""The kinds of lists that clients can request. Resource templates belong to `resources`."""


class ToolError(ExecutionError):
    """Ends the call with a failed result (`isError: true`), whose text is for the model.

    Use it for errors that the caller can correct, such as `ToolError("no disk sdx: use sda or sdb")`. Other exceptions
    are treated as bugs: they are logged, and the caller receives the name of the function and a correlation id.

    Args:
        message: The text. Secrets of the configuration are masked.
    """


class ProtocolError(RpcError):
    """Ends the call with a JSON-RPC error instead of a result. Prefer `ToolError`: few models see JSON-RPC errors.

    Args:
        code: An integer below 2^31. JSON-RPC 2.0 §5.1 reserves -32768 to -32000; use others.
        message: One sentence.
        data: Any JSON value, for programs.
    """


# Dataclasses, because pydantic and orjson support them in annotations and results.
@dataclass(frozen=True, slots=True, kw_only=True)
class _Annotated:
    annotations: JsonObject | None = None
    """Hints for the client: `audience`, `priority` and `lastModified`. See `Annotations` in the MCP schema."""


@dataclass(frozen=True, slots=True)
class Text(_Annotated):
    """A text block. Functions can also return `str`."""

    text: str


@dataclass(frozen=True, slots=True)
class Image(_Annotated):
    """An image block."""

    data: bytes
    """The bytes of the file, without base64."""
    mime_type: str
    """The media type, such as `image/png`."""


@dataclass(frozen=True, slots=True)
class Audio(_Annotated):
    """An audio block. Clients of revision 2024-11-05 receive an embedded resource instead."""

    data: bytes
    """The bytes of the file, without base64."""
    mime_type: str
    """The media type, such as `audio/wav`."""


@dataclass(frozen=True, slots=True)
class EmbeddedResource(_Annotated):
    """The contents of a resource inside a result."""

    uri: str
    """Any URI, even if the client cannot read it."""
    contents: str | bytes
    """Text, or bytes, which are sent as a base64 blob."""
    mime_type: str | None = None


@dataclass(frozen=True, slots=True)
class ResourceLink(_Annotated):
    """A link to a resource that the client can read. Clients before 2025-06-18 receive the title and URI as text."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    """Size of the resource in bytes, before base64 encoding."""


Content = Text | Image | Audio | EmbeddedResource | ResourceLink
"""A block of a result. Functions can return a block, or a list of blocks and other values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The user's answer to `elicit` or `elicit_url`, which can be a refusal."""

    action: Literal["accept", "decline", "cancel"]
    """`accept`: submitted; `decline`: refused; `cancel`: dismissed without a choice."""
    content: JsonObject | None = None
    """The validated fields of the form, if `action` is `accept`. For `elicit_url`, usually empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The message that the client's model generated."""

    text: str
    """The concatenated text blocks."""
    content: Json
    """A block, or since 2025-11-25 a list of blocks. The `type` of a block is `text`, `image`, `audio` or `tool_use`.
    Only text blocks are validated.
    """
    model: str
    """Name of the model, or empty."""
    stop_reason: str | None = None
    """`endTurn`, `stopSequence`, `maxTokens`, `toolUse`, or any other value from the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The verified identity of the caller."""

    subject: str
    """The `sub` claim of the access token, or the name of the API key."""
    issuer: str
    """URL of the issuer of the token; empty for API keys."""
    scopes: Sequence[str]
    roles: Sequence[str]
    """Roles or groups in the token."""
    claims: JsonObject
    """All claims of the token; empty for API keys."""
    client: str
    """`client_id` or `azp` of the token. For API keys, the client's own name, which is not verified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The task of a call, which outlives its request (`task:` in the file)."""

    id: str
    """Id for polling. Without authentication, anyone who knows the id can read the task."""
    created_at: float
    """The time when the task was created, in seconds since the epoch."""
    expires_at: float
    """The time when the task is stopped and deleted, in seconds since the epoch."""
    restarts_left: int
    """Remaining restarts after failures of the process (`restart`)."""


class _Facts(Protocol):
    """Members of `Context` and `SyncContext`. All properties except `cancelled` are constant and thread-safe."""

    @property
    def principal(self) -> str | None:
        """The authenticated caller: the name of an API key, or the `sub` claim of an access token.

        None without authentication: on stdio, and over HTTP without `auth`.
        """

    @property
    def caller(self) -> Caller | None:
        """The verified identity of the caller, or None if `principal` is None."""

    @property
    def client(self) -> JsonObject:
        """The client's `Implementation` object, such as `{"name": …, "version": …}`.

        The object is not verified. It is empty if the client did not send one.
        """

    @property
    def client_capabilities(self) -> JsonObject:
        """The client's `ClientCapabilities`, such as `{"elicitation": {"form": {}}}`.

        `elicit` needs `elicitation`, `elicit_url` needs `elicitation.url`, `sample` needs `sampling`, and `list_roots`
        needs `roots`.
        """

    @property
    def protocol_version(self) -> str:
        """The protocol revision, such as `2025-06-18`. Revisions can be compared as strings."""

    @property
    def progress_token(self) -> str | int | None:
        """The progress token, or None if the client did not request progress."""

    @property
    def request_meta(self) -> JsonObject:
        """The unverified `_meta` object of the request, including keys of the protocol."""

    @property
    def task(self) -> Task | None:
        """The task of the call, or None if the call has not become a task.

        In a task, messages of `progress` become the status of the task, and `log` does nothing.
        """

    @property
    def cancelled(self) -> bool:
        """Whether the result is no longer needed: the call was cancelled, timed out or has ended.

        Async functions receive `asyncio.CancelledError` instead, and can read this property only on the event loop.
        Functions in a thread cannot be interrupted, so they should check this property regularly and return.
        """

    def notify_changed(self, kind: ListKind) -> None:
        """Notify all clients that the list of this kind has changed. `enable`, `disable` and reloads already notify.

        Raises:
            ToolError: `kind` is unknown.
        """

    def resource_updated(self, uri: str) -> None:
        """Notify the clients that have subscribed to a URI. The resource does not have to exist."""

    def enable(self, kind: ListKind, name: str) -> None:
        """Enable a disabled definition for all callers, and announce the changed list.

        Args:
            kind: The section of the configuration file: `tools`, `prompts` or `resources`.
            name: The key of the definition in that section. A resource is named by its key, not by its URI. The files
                of a skill are named `skill://<name of the skill>`.

        Raises:
            ToolError: `kind` is unknown.
            ExecutionError: The configuration file has no such definition.
        """

    def disable(self, kind: ListKind, name: str) -> None:
        """Disable a definition for all callers, and announce the changed list. For errors, see `enable`.

        Running calls continue. The definition stays disabled until the process ends, also after reloads.

        Args:
            kind: As for `enable`.
            name: As for `enable`.
        """


class Context(_Facts, Protocol):
    """The context of a call, for async functions. The context can only be used on the event loop.

    `progress`, `log` and `close_stream` send messages in order, even without `await`. To send many messages, await each
    call: up to 1000 messages are queued for a slow client, and further messages are dropped. After the
    call, these methods do nothing, and methods that ask the client raise `ToolError`.
    """

    @property
    def http(self) -> "HttpClient":
        """The shared HTTP client, which propagates the call's trace. Do not close it.

        Private, loopback and link-local addresses are refused.
        """

    def progress(self, value: float, total: float | None = None, message: str | None = None) -> Awaitable[None]:
        """Report progress, if the client sent a progress token.

        Without reports, the client is notified every 15 seconds that the call is still running.

        Args:
            value: The progress so far, in any unit. Values that do not increase or are not finite are dropped.
            total: The value at the end, if known.
            message: A line of text (since 2025-03-26). Secrets are masked.
        """

    def log(self, level: LogLevel, data: Json, logger: str | None = None) -> Awaitable[None]:
        """Send a log message to the client, if the client requested messages of this level.

        To write to the log of the gateway, use `logging` or `structlog`.

        Args:
            level: A severity of RFC 5424.
            data: Any JSON value. Secrets are masked.
            logger: The name of the logger, such as a component of your plugin.

        Raises:
            ToolError: There is no such level, or the data is not JSON.
        """

    async def elicit(self, key: str, message: str, schema: JsonObject) -> Answer:
        """Ask the user to fill in a form (since 2025-06-18; the client needs `elicitation`).

        Do not ask for secrets (MCP client/elicitation, "Security"). Use `elicit_url` instead.

        Args:
            key: Name of the question within the call; see the docstring of the module.
            message: The text above the form.
            schema: A JSON Schema `{"type": "object", "properties": {…}}`. Properties are strings, numbers, integers,
                booleans, or choices (`enum`, `oneOf`; lists of choices since 2025-11-25).

        Raises:
            ToolError: The schema is invalid, another question has the same key, or questions are not possible, as in
                completions.
            ExecutionError: The client refused, sent an invalid answer, did not answer within `ask_timeout`, or uses a
                protocol revision that does not support this schema.
            RpcError: The client did not declare the capability. Do not catch this exception.
        """

    async def elicit_url(self, key: str, message: str, url: str) -> Answer:
        """Ask the user to open a page (since 2025-11-25; the client needs `elicitation.url`).

        `accept` means that the user agreed to open the page, not that they have finished there.

        Args:
            key: The name of this question within the call.
            message: The reason for opening the page.
            url: An absolute `https://` or `http://` URL.

        Raises:
            ToolError: The URL is invalid. For other errors, see `elicit`.
        """

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
        """Send a prompt to the client's model, within `limits.sampling` (the client needs `sampling`).

        Args:
            key: The name of this question within the call.
            messages: A user's text, or a list of messages, each `{"role": "user" or "assistant", "content": a block or
                a list of blocks}`. Before 2025-11-25 a message has one block: text, an image, or (since 2025-03-26)
                audio.
            system_prompt: Instructions for the model, which the client can change or drop.
            max_tokens: At least 1, limited by `limits.sampling.max_tokens`.
            temperature: The sampling temperature, in the model's own scale.
            stop_sequences: Texts at which the model stops.
            model_preferences: The protocol's `ModelPreferences`: `hints`, and priorities from 0 to 1.
            tools: Tools that the model can request, as the protocol's `Tool` (since 2025-11-25; the client needs
                `sampling.tools`). The function runs the tools itself, and calls `sample` again.

        Raises:
            ToolError: The messages or `max_tokens` are invalid. For other errors, see `elicit`.
            ExecutionError: `limits.sampling` is exceeded.
        """

    async def list_roots(self, key: str) -> Sequence[JsonObject]:
        """Ask for the directories that the client works in (the client needs `roots`).

        Args:
            key: The name of this question within the call.

        Returns:
            Objects with a `uri` that starts with `file://`, and optionally a `name`. For errors, see `elicit`.
        """

    async def ask(self, requests: Mapping[str, JsonObject]) -> Mapping[str, Json]:
        """Ask several questions at the same time.

        Args:
            requests: Protocol requests by key: `{"method": "elicitation/create" or "sampling/createMessage" or
                "roots/list", "params": {…}}`, with params as in revision 2026-07-28.

        Returns:
            The client's results by key: `{"action": …, "content": {…}}` for elicitation, `{"content": …, "model": …}`
            for sampling, `{"roots": […]}` for roots. The results are checked like the results of `elicit`, `sample` and
            `list_roots`.

        Raises:
            ToolError: A request is invalid. For other errors, see `elicit` and `sample`.
            ExecutionError: A question failed. The other questions are withdrawn.
        """

    async def ask_before(self, requests: Mapping[str, JsonObject]) -> Mapping[str, Json]:
        """Like `ask`, but ask the questions before the call becomes a task (`task:` in the file).

        The call of an async function can become a task as soon as it waits, so ask these questions first. For plain
        functions, set `ask: before` or `after` in `task`. In a call that already is a task, this is the same as `ask`.
        """

    async def ask_inside(self, requests: Mapping[str, JsonObject]) -> Mapping[str, Json]:
        """Like `ask`, but ask the questions inside the task, if the call can become a task."""

    async def once(self, key: str, function: Callable[[], Awaitable[T]]) -> T:
        """Run a step once per call, even if the client has to retry.

        Clients of revision 2026-07-28 store the result between retries, and can read it. Do not return secrets. Results
        and answers are limited to 64 KiB in total. If the client loses the result, the step runs again.

        Args:
            key: The name of this step within the call.
            function: A function without parameters, called if no result is stored. Exceptions are not stored.

        Returns:
            The result, converted to JSON and back: tuples become lists.

        Raises:
            TypeError: The result is not JSON.
            ValueError: The result contains a secret of the configuration.
            ToolError: Questions are not possible, or the call has ended.
        """

    def close_stream(self, retry_ms: int | None = None) -> Awaitable[None]:
        """Close the HTTP event stream of a long call, to free its connection. The client reconnects for the result.

        Has no effect for protocol revisions before 2025-11-25 and for other transports.

        Args:
            retry_ms: How long the client waits before it reconnects, in milliseconds. None means 1000.

        Raises:
            ToolError: The number is negative.
        """

    async def read_resource(self, uri: str) -> Sequence[JsonObject]:
        """Read a resource of this server with the caller's permissions.

        Returns:
            The protocol's `ReadResourceResult.contents`: objects with `uri`, `mimeType`, and `text` or a base64 `blob`.

        Raises:
            ExecutionError: A limit of the resource is exceeded.
            RpcError: The resource does not exist, cannot be read, or needs another scope.
        """


class SyncContext(_Facts, Protocol):
    """The context of a call, for plain functions, which run in a thread.

    The methods block the calling thread, which can be any thread except the thread of the event loop. After the end of
    the call, all methods raise `ToolError`, so a function that is still running ends when it calls a method.
    """

    def progress(self, value: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress; see `Context.progress`."""

    def log(self, level: LogLevel, data: Json, logger: str | None = None) -> None:
        """Send a log message to the client; see `Context.log`."""

    def elicit(self, key: str, message: str, schema: JsonObject) -> Answer:
        """Ask the user to fill in a form; see `Context.elicit`."""

    def elicit_url(self, key: str, message: str, url: str) -> Answer:
        """Ask the user to open a page; see `Context.elicit_url`."""

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
    ) -> Sample:
        """Send a prompt to the client's model; see `Context.sample`."""

    def list_roots(self, key: str) -> Sequence[JsonObject]:
        """Ask for the directories that the client works in; see `Context.list_roots`."""

    def ask(self, requests: Mapping[str, JsonObject]) -> Mapping[str, Json]:
        """Ask several questions at once; see `Context.ask`."""

    def ask_before(self, requests: Mapping[str, JsonObject]) -> Mapping[str, Json]:
        """Ask several questions before the call becomes a task; see `Context.ask_before`."""

    def ask_inside(self, requests: Mapping[str, JsonObject]) -> Mapping[str, Json]:
        """Ask several questions inside the task; see `Context.ask_inside`."""

    def once(self, key: str, function: Callable[[], T]) -> T:
        """Run a step once for this call, in the calling thread; see `Context.once`."""

    def close_stream(self, retry_ms: int | None = None) -> None:
        """Close the call's event stream; see `Context.close_stream`."""

    def read_resource(self, uri: str) -> Sequence[JsonObject]:
        """Read a resource of this server; see `Context.read_resource`."""
