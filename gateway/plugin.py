"""The API for tool authors in Python: the call's context, content classes and two exceptions.

    from gateway.plugin import Context, Image, ToolError

A plugin function's parameters become the tool's input schema, its return annotation the output schema and its docstring
the description. A parameter annotated `Context` (async functions) or `SyncContext` (plain functions, run in a thread)
receives the context of the call.

A function returns text, any JSON value (dataclasses and pydantic models are objects; NaN is an error), `bytes`, or
content: an `Image` or similar, or a list that contains some.

**Files**: a parameter annotated `bytes` is an input of `type: file`. Clients send base64 or a `data:` URI, and the
function gets the decoded content. `Annotated[bytes, Field(max_length=2**20, json_schema_extra={"media_types":
["image/*"]})]` restricts the files, and so does `input` in the YAML file.

**Questions to the client** (`elicit`, `elicit_url`, `sample`, `list_roots`, `ask`) work the same for all revisions.
Clients until 2025-11-25 answer while the function waits. Clients of 2026-07-28 answer by calling again. The function
then runs again from its start, with the answer available:

- Ask first, act afterwards: everything before an unanswered question is repeated with each retry. Wrap steps that must
  not be repeated, or that take long, in `once`.
- Each question has its own key, which is the same in every retry. Do not build keys from changing values (times, random
  numbers); `f"file {name}"` is fine.
- Take the same path in every retry. The function can depend on its arguments, on answers, and on results of `once`, but
  not on the time of day.
- Independent questions can be asked together: use `ask`, or `asyncio.gather` over `elicit` and similar.
- An unanswered question ends the call, even if code around it catches everything (`except:`, `except BaseException`).
- `client_capabilities` shows whether the client can be asked. Clients that cannot are refused automatically.

**Tasks**: a call of a tool with `task:` can outlive its request (`context.task`). A question inside a task ends the run
too, and the function runs again from its start when the client has answered. The same rules apply.

The time of an open question counts against `ask_timeout`, not against the tool's `timeout`, and other calls can use the
tool's concurrency meanwhile.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from gateway.errors import ExecutionError, RpcError
from gateway.json_types import Json, JsonObject

if TYPE_CHECKING:  # aiohttp takes an eighth of the time to start, and few functions send requests
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
"""A list of primitives. Resource templates belong to `resources`."""


class ToolError(ExecutionError):
    """Ends the call with a failed result (`isError: true`), whose text the model can act on.

    Use it for errors that the caller can correct, such as `ToolError("no disk sdx: there are sda, sdb")`. Any other
    exception is
    treated as a bug: it is logged with its traceback, and the caller gets the function's name and a correlation id.

    Args:
        message: The text. Secrets of the configuration are masked.
    """


class ProtocolError(RpcError):
    """Ends the call with a JSON-RPC error instead of a result. Few models see these; prefer `ToolError`.

    Args:
        code: An integer below 2^31. JSON-RPC 2.0 §5.1 reserves -32768 to -32000; use others.
        message: One sentence.
        data: Any JSON value for programs; None for nothing.
    """


# Dataclasses, because plugin functions return, copy and annotate them, and pydantic and orjson support them.
@dataclass(frozen=True, slots=True, kw_only=True)
class _Annotated:
    annotations: JsonObject | None = None
    """Hints for the client: `audience` (a list of `user` and `assistant`), `priority` (0 to 1), and since 2025-06-18
    `lastModified` (ISO 8601). See `Annotations` in the MCP schema.
    """


@dataclass(frozen=True, slots=True)
class Text(_Annotated):
    """A text block. A returned `str` needs no wrapping."""

    text: str


@dataclass(frozen=True, slots=True)
class Image(_Annotated):
    """An image block."""

    data: bytes
    """The file's bytes, without base64."""
    mime_type: str
    """For example `image/png`."""


@dataclass(frozen=True, slots=True)
class Audio(_Annotated):
    """An audio block (since 2025-03-26; clients of 2024-11-05 get an embedded resource)."""

    data: bytes
    """The file's bytes, without base64."""
    mime_type: str
    """For example `audio/wav`."""


@dataclass(frozen=True, slots=True)
class EmbeddedResource(_Annotated):
    """The contents of a resource inside a result."""

    uri: str
    """Any URI. The client does not have to be able to read it."""
    contents: str | bytes
    """Text, or bytes, which are encoded as a base64 blob."""
    mime_type: str | None = None


@dataclass(frozen=True, slots=True)
class ResourceLink(_Annotated):
    """A reference to a resource that the client can read, even if it is not listed.

    Since 2025-06-18; older clients get its title and URI as text.
    """

    uri: str
    name: str
    title: str | None = None
    """The name for display."""
    description: str | None = None
    """Description for the model."""
    mime_type: str | None = None
    size: int | None = None
    """The size in bytes before encoding."""


Content = Text | Image | Audio | EmbeddedResource | ResourceLink
"""A block of a result. Functions can return one, or a list that also contains other values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The user's answer to `elicit` or `elicit_url`.

    Declining is also an answer. The function decides how to handle it.
    """

    action: Literal["accept", "decline", "cancel"]
    """`accept`: submitted; `decline`: refused; `cancel`: dismissed without a choice."""
    content: JsonObject | None = None
    """The form's fields by name, valid against its schema, if `action` is `accept`; otherwise None. After `elicit_url`,
    an
    accepted answer usually has an empty object.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The message that the client's model generated for `sample`."""

    text: str
    """The concatenated text of all text blocks; empty if there are none."""
    content: Json
    """The content from the client: one block, or (since 2025-11-25) a list. The `type` of a block is `text`, `image`,
    `audio` or, with `tools`, `tool_use`. Only text blocks were checked.
    """
    model: str
    """The model's name from the client; empty if there is none."""
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
    """The id with which the client polls it. Without authentication, anyone who knows the id can read the task."""
    created_at: float
    """Seconds since the epoch."""
    expires_at: float
    """The time when the task is deleted and its work stopped, in seconds since the epoch."""
    restarts_left: int
    """How often the function can still be restarted after its process died (`restart`)."""


class _Facts(Protocol):
    """The facts and methods that both contexts share.

    Properties other than `cancelled` do not change during a call and can be read from any thread.
    """

    @property
    def principal(self) -> str | None:
        """The authenticated caller: the name of an API key, or the `sub` claim of an access token.

        None without authentication: on stdio, and over HTTP without `auth`. All other facts here come from the client
        unverified.
        """

    @property
    def caller(self) -> Caller | None:
        """The verified identity of the caller; None where `principal` is None."""

    @property
    def client(self) -> JsonObject:
        """The client's `Implementation` object: `{"name": …, "version": …}` and more.

        Unverified. From `initialize`, or since 2026-07-28 from the request's `_meta`; empty if it is missing there.
        """

    @property
    def client_capabilities(self) -> JsonObject:
        """The client's `ClientCapabilities`, such as `{"elicitation": {"form": {}}}`.

        `elicit` needs `elicitation`, `elicit_url` needs `elicitation.url`, `sample` needs `sampling`, and `list_roots`
        needs `roots`.
        """

    @property
    def protocol_version(self) -> str:
        """The protocol revision of the call, such as `2025-06-18`. Revisions can be compared as strings."""

    @property
    def progress_token(self) -> str | int | None:
        """The client's progress token; None if it wants no progress. `progress` uses it."""

    @property
    def request_meta(self) -> JsonObject:
        """The `_meta` object of the request, including the protocol's own keys.

        Unverified; empty if there is none.
        """

    @property
    def task(self) -> Task | None:
        """The task of the call; None for an ordinary call, and while the call can still return its result directly.

        In a task, messages of `progress` become the task's status and `log` does nothing. A question ends the run, and
        the function runs again from its start when the client has answered.
        """

    @property
    def cancelled(self) -> bool:
        """Whether the result is no longer needed: the call was cancelled, timed out or has ended.

        Async functions get `asyncio.CancelledError` at an `await` instead, and can only read this on the event loop. A
        function in a thread cannot be interrupted. It should check this from time to time, in any thread, and return.
        """

    def notify_changed(self, kind: ListKind) -> None:
        """Notify all clients that a list changed (`list_changed`), whether or not it did.

        Rarely needed: reloads, `enable` and `disable` send notifications themselves.

        Raises:
            ToolError: There is no such kind.
        """

    def resource_updated(self, uri: str) -> None:
        """Notify the clients that subscribed to this URI and can read it.

        A URI without subscribers or resource is not an error.
        """

    def enable(self, kind: ListKind, name: str) -> None:
        """Enable a disabled definition for all callers, and announce the changed list.

        Args:
            kind: The section of the file.
            name: The key in the file, also for resources. All files of a skill are the resource `skill://<its name>`.

        Raises:
            ToolError: There is no such kind.
            ExecutionError: The file has no such definition. This is the base class of `ToolError` and ends the call the
                same way.
        """

    def disable(self, kind: ListKind, name: str) -> None:
        """Disable a definition for all callers, and announce the changed list.

        Running calls continue. The definition stays disabled across reloads while the file contains its name, until the
        process ends.

        Args:
            kind: The section of the file.
            name: The key in the file, also for resources. All files of a skill are the resource `skill://<its name>`.

        Raises:
            ToolError: There is no such kind.
            ExecutionError: The file has no such definition. This is the base class of `ToolError` and ends the call the
                same way.
        """


class Context(_Facts, Protocol):
    """The context of a call, for async functions. Only for use on the event loop.

    `progress`, `log` and `close_stream` send in the order of their calls and before the result, even if they are not
    awaited. Await them if you send a lot quickly: at most 1000 messages are queued for a slow client, and further ones
    are dropped.

    After the end of the call these three do nothing, and methods that ask the client raise `ToolError`.
    """

    @property
    def http(self) -> "HttpClient":
        """The shared HTTP client, which propagates the call's trace. Do not close it.

        Private, loopback and link-local addresses are refused.
        """

    def progress(self, value: float, total: float | None = None, message: str | None = None) -> Awaitable[None]:
        """Report progress, if the client sent a progress token.

        The client is notified every 15 seconds without a report that the call is still running.

        Args:
            value: The progress so far, in any unit. Values must grow. Other values are dropped, and so are non-finite
                ones.
            total: The value at the end, if known.
            message: A line for people (since 2025-03-26). Secrets are masked.
        """

    def log(self, level: LogLevel, data: Json, logger: str | None = None) -> Awaitable[None]:
        """Send a log message to the client, if it asked for messages of this level.

        Clients ask with `logging/setLevel` until 2025-11-25, and with each request since 2026-07-28. This is not the
        gateway's own
        log, which `logging` and `structlog` write to.

        Args:
            level: A severity of RFC 5424.
            data: Any JSON value. Secrets are masked.
            logger: The name of the part of the program.

        Raises:
            ToolError: There is no such level, or the data is not JSON.
        """

    async def elicit(self, key: str, message: str, schema: JsonObject) -> Answer:
        """Ask the user to fill in a form (since 2025-06-18; the client needs `elicitation`).

        Never ask for secrets this way (client/elicitation, "Security"): see `elicit_url`.

        Args:
            key: The name of this question within the call; see the module's docstring.
            message: The text above the form.
            schema: A flat JSON Schema: `{"type": "object", "properties": {…}}` whose properties are strings, numbers,
                integers,
                booleans, or choices (`enum`, `oneOf`; lists of choices since 2025-11-25).

        Raises:
            ToolError: The schema is invalid, the key belongs to another question of this call, or nothing can be asked
                here, as in
                completions.
            ExecutionError: The client refused, sent an invalid answer, or did not answer within `ask_timeout`; or its
                revision does
                not support this form.
            RpcError: The client did not declare the capability. Do not catch it.
        """

    async def elicit_url(self, key: str, message: str, url: str) -> Answer:
        """Ask the user to open a page (since 2025-11-25; the client needs `elicitation.url`).

        `accept` means that the user agreed to open the page, not that they have finished there.

        Args:
            key: The name of this question within the call.
            message: The reason for opening the page.
            url: An absolute `https://` or `http://` URL.

        Raises:
            ToolError: The URL is invalid; otherwise as `elicit`.
            ExecutionError: As `elicit`.
            RpcError: As `elicit`.
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
        """Ask the client's model, within `limits.sampling` (the client needs `sampling`).

        Args:
            key: The name of this question within the call.
            messages: A user's text, or a list of messages, each `{"role": "user" or "assistant", "content": a block or
                a list of blocks}`. Before 2025-11-25 a message has one block: text, an image, or (since 2025-03-26)
                audio.
            system_prompt: The client can change or drop it.
            max_tokens: At least 1, limited by `limits.sampling.max_tokens`.
            temperature: In the model's own scale.
            stop_sequences: Texts at which the model stops.
            model_preferences: The protocol's `ModelPreferences`: `hints`, and priorities from 0 to 1.
            tools: Tools that the model can request, as the protocol's `Tool` (since 2025-11-25; the client needs
                `sampling.tools`). The function runs them itself and asks again.

        Raises:
            ToolError: The messages or `max_tokens` are invalid; otherwise as `elicit`.
            ExecutionError: `limits.sampling` is exceeded; otherwise as `elicit`.
            RpcError: As `elicit`.
        """

    async def list_roots(self, key: str) -> Sequence[JsonObject]:
        """Ask for the directories that the client works in (the client needs `roots`).

        Args:
            key: The name of this question within the call.

        Returns:
            Objects with a `uri` that starts with `file://`, and optionally a `name`.

        Raises:
            ToolError: As `elicit`.
            ExecutionError: As `elicit`.
            RpcError: As `elicit`.
        """

    async def ask(self, requests: Mapping[str, JsonObject]) -> Mapping[str, Json]:
        """Ask several questions at the same time.

        Args:
            requests: Protocol requests by key: `{"method": "elicitation/create" or "sampling/createMessage" or
                "roots/list", "params": {…}}`, with params in the form of 2026-07-28.

        Returns:
            The client's results by key: `{"action": …, "content": {…}}` for elicitation, `{"content": …, "model": …}`
            for sampling, `{"roots": […]}` for roots. They are checked like those of `elicit`, `sample` and
            `list_roots`.

        Raises:
            ToolError: A request is invalid; otherwise as `elicit`.
            ExecutionError: As `sample`; the other questions are withdrawn.
            RpcError: As `elicit`.
        """

    async def ask_before(self, requests: Mapping[str, JsonObject]) -> Mapping[str, Json]:
        """Ask several questions before the call becomes a task; otherwise as `ask`.

        For calls that can become tasks (`task:` in the file), regardless of their `ask`. Async functions must ask these
        questions before they wait for anything else. Functions that run in a thread or wait first need `ask: before` or
        `after`. Late questions are asked inside the task.
        """

    async def ask_inside(self, requests: Mapping[str, JsonObject]) -> Mapping[str, Json]:
        """Ask several questions inside the task, if the call can become one; otherwise as `ask`."""

    async def once(self, key: str, function: Callable[[], Awaitable[T]]) -> T:
        """Run a step once per call, even if the client has to retry.

        Clients of 2026-07-28 carry the result between retries. They can read but not change it, and it is limited to 64
        KiB together with the answers. So do not store secrets here, only references to them. If a client comes back
        without it, the function runs again.

        Args:
            key: The name of this step within the call.
            function: Called without arguments unless its result is available. Nothing is stored if it raises.

        Returns:
            The function's result after conversion to and from JSON: tuples become lists.

        Raises:
            TypeError: The result is not JSON.
            ValueError: The result contains a secret of the configuration.
            ToolError: Nothing can be asked here, or the call has ended.
        """

    def close_stream(self, retry_ms: int | None = None) -> Awaitable[None]:
        """Close the call's event stream, and let the client poll for the rest (since 2025-11-25).

        Use it for long calls, so that no connection stays open. Progress and the result wait for the client. Does
        nothing for other
        revisions and transports.

        Args:
            retry_ms: The client's delay in milliseconds: 0 or more; None for 1000.

        Raises:
            ToolError: The number is negative.
        """

    async def read_resource(self, uri: str) -> Sequence[JsonObject]:
        """Read a resource of this server with the caller's permissions.

        Returns:
            The protocol's `ReadResourceResult.contents`: objects with `uri`, `mimeType`, and `text` or a base64 `blob`.

        Raises:
            ExecutionError: A limit of the resource is exceeded.
            RpcError: The resource does not exist, cannot be read, or needs another scope. If it is not caught, the call
                ends with a matching error.
        """


class SyncContext(_Facts, Protocol):
    """The context of a call, for plain functions, which run in a thread.

    Methods are those of `Context`. They block the calling thread, and can be called from any thread but the event
    loop's. After the end of the call every method raises `ToolError`, also in calls that are still waiting. So a
    function that outlives its deadline ends at its next use of the context.
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
        """Ask the client's model; see `Context.sample`."""

    def list_roots(self, key: str) -> Sequence[JsonObject]:
        """Ask for the directories that the client works in; see `Context.list_roots`."""

    def ask(self, requests: Mapping[str, JsonObject]) -> Mapping[str, Json]:
        """Ask several questions at once; see `Context.ask`."""

    def ask_before(self, requests: Mapping[str, JsonObject]) -> Mapping[str, Json]:
        """Ask several questions before there is a task; see `Context.ask_before`."""

    def ask_inside(self, requests: Mapping[str, JsonObject]) -> Mapping[str, Json]:
        """Ask several questions inside a task; see `Context.ask_inside`."""

    def once(self, key: str, function: Callable[[], T]) -> T:
        """Run a step once for this call, in the calling thread; see `Context.once`."""

    def close_stream(self, retry_ms: int | None = None) -> None:
        """Close the call's event stream; see `Context.close_stream`."""

    def read_resource(self, uri: str) -> Sequence[JsonObject]:
        """Read a resource of this server; see `Context.read_resource`."""
