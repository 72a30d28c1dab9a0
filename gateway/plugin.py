"""The API for authors of tools in Python: the call's context, content classes, and two exceptions. All of it.

    from gateway.plugin import Context, Image, ToolError

A plugin function's parameters become the tool's input schema, its return annotation the output schema and its docstring
the description. A parameter annotated `Context` (async functions) or `SyncContext` (plain functions, run in a thread)
receives the context of the call.

A function returns text, anything that JSON can say (dataclasses and pydantic models are objects; NaN is an error),
`bytes`, or content: an `Image` and the like, or a list with some.

**Files**: a parameter annotated `bytes` is an input of `type: file`: clients send base64 or a `data:` URI, the function
gets what it holds. `Annotated[bytes, Field(max_length=2**20, json_schema_extra={"media_types": ["image/*"]})]` says
which files; so does `input` in the YAML file.

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

**Tasks**: a call of a tool with `task:` may outlive its request (`context.task`). A question inside a task ends the
run, too, and the function runs again from its start once the client has answered; the rules above are the same.

The time that a question is open counts against `ask_timeout`, not against the tool's `timeout`, and others may use the
tool's place meanwhile.
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
"""A severity of RFC 5424, mildest first."""
ListKind = Literal["tools", "prompts", "resources"]
"""A list that clients have; resource templates are on `resources`."""


class ToolError(ExecutionError):
    """Ends the call with a failed result (`isError: true`) whose text the model reads, and may act on.

    For what the caller can mend, such as `ToolError("no disk sdx: there are sda, sdb")`. Any other exception is taken
    for a bug: it is logged with its traceback, and the caller reads the function's name and a correlation id.

    Args:
        message: The text. Secrets of the configuration are masked in it.
    """


class ProtocolError(RpcError):
    """Ends the call with a JSON-RPC error in place of a result. Few models get to see one; prefer `ToolError`.

    Args:
        code: A whole number below 2^31. JSON-RPC 2.0 §5.1 reserves -32768 to -32000; use others.
        message: One sentence.
        data: Any JSON value that helps a program; None for nothing.
    """


# Dataclasses, which authors' functions may return, copy and annotate: pydantic and orjson know them.
@dataclass(frozen=True, slots=True, kw_only=True)
class _Annotated:
    annotations: JsonObject | None = None
    """Hints for the client: `audience` (a list of `user` and `assistant`), `priority` (0 to 1), and since 2025-06-18
    `lastModified` (ISO 8601). See the schema's `Annotations`."""


@dataclass(frozen=True, slots=True)
class Text(_Annotated):
    """A text block. A function that returns a `str` need not wrap it."""

    text: str


@dataclass(frozen=True, slots=True)
class Image(_Annotated):
    """An image block."""

    data: bytes
    """The file's bytes; they are encoded as base64 for you."""
    mime_type: str
    """Such as `image/png`."""


@dataclass(frozen=True, slots=True)
class Audio(_Annotated):
    """An audio block (since 2025-03-26; clients of 2024-11-05 get an embedded resource with the same bytes)."""

    data: bytes
    """The file's bytes; they are encoded as base64 for you."""
    mime_type: str
    """Such as `audio/wav`."""


@dataclass(frozen=True, slots=True)
class EmbeddedResource(_Annotated):
    """A resource's contents inside a result."""

    uri: str
    """Any URI; the client need not be able to read it."""
    contents: str | bytes
    """Text, or bytes, which are encoded as a base64 blob for you."""
    mime_type: str | None = None


@dataclass(frozen=True, slots=True)
class ResourceLink(_Annotated):
    """A reference to a resource that the client may read; it need not be listed.

    Since 2025-06-18; older clients get its title and URI as text.
    """

    uri: str
    name: str
    title: str | None = None
    """Shown to people in place of the name."""
    description: str | None = None
    """Read by the model."""
    mime_type: str | None = None
    size: int | None = None
    """Bytes, before any encoding."""


Content = Text | Image | Audio | EmbeddedResource | ResourceLink
"""A block of a result. A function may return one, or a list of them in which other values may stand, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The user's answer to `elicit` or `elicit_url`.

    Declining is an answer: the function decides what becomes of it.
    """

    action: Literal["accept", "decline", "cancel"]
    """`accept`: submitted; `decline`: refused; `cancel`: dismissed without a choice."""
    content: JsonObject | None = None
    """The form's fields by name, valid against its schema, where `action` is `accept`; None otherwise. After
    `elicit_url` an accepted answer usually has an empty object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The message that the client's model wrote for `sample`."""

    text: str
    """The text of all text blocks, one after the other; empty if there are none."""
    content: Json
    """The content as the client sent it: one block, or (since 2025-11-25) a list of them. A block is an object whose
    `type` is `text`, `image`, `audio` or, with `tools`, `tool_use`. Only text blocks were checked."""
    model: str
    """The model's name, as the client gives it; empty if it gives none."""
    stop_reason: str | None = None
    """`endTurn`, `stopSequence`, `maxTokens`, `toolUse`, or whatever the client says."""


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
    """The task that a call has become: it outlives its request (`task:` in the file)."""

    id: str
    """The id by which the client asks for it. Whoever knows it may, where nobody has to authenticate."""
    created_at: float
    """Seconds since the epoch."""
    expires_at: float
    """When the task is forgotten, and its work stopped: seconds since the epoch."""
    restarts_left: int
    """How often the function may still be begun again after its process died (`restart`)."""


class _Facts(Protocol):
    """The facts of a call, and what may be told about the server: both contexts have them.

    Facts other than `cancelled` do not change during a call and may be read from any thread.
    """

    @property
    def principal(self) -> str | None:
        """The authenticated caller: the name of an API key, or the `sub` claim of an access token.

        None where nobody has to authenticate: on stdio, and over HTTP without `auth`. The only fact here that a client
        cannot invent.
        """

    @property
    def caller(self) -> Caller | None:
        """The verified identity of the caller; None where `principal` is None."""

    @property
    def client(self) -> JsonObject:
        """The client's name for itself, as the protocol's `Implementation`: `{"name": …, "version": …}` and more.

        Unverified. From `initialize`, or since 2026-07-28 from the request's `_meta`; empty if it is missing there.
        """

    @property
    def client_capabilities(self) -> JsonObject:
        """The protocol's `ClientCapabilities` as the client declared them, such as `{"elicitation": {"form": {}}}`.

        `elicit` needs `elicitation`, `elicit_url` needs `elicitation.url`, `sample` needs `sampling` and
        `list_roots` needs `roots`.
        """

    @property
    def protocol_version(self) -> str:
        """The revision that the call is answered in, such as `2025-06-18`. Revisions compare as text."""

    @property
    def progress_token(self) -> str | int | None:
        """The token under which the client wants progress; None if it wants none. `progress` uses it for you."""

    @property
    def request_meta(self) -> JsonObject:
        """The `_meta` object of the request's params as the client sent it, the protocol's own keys included.

        Unverified; empty if there is none.
        """

    @property
    def task(self) -> Task | None:
        """The task that the call is; None for an ordinary call, and as long as the call may still be answered directly.

        In a task, messages of `progress` become the task's status, `log` goes nowhere, and a question ends the run: the
        function runs again from its start when the client has answered.
        """

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more: the call was cancelled, timed out or has ended.

        An async function need not look, because `asyncio.CancelledError` is raised in it at an `await`; it may read
        this on the event loop alone. A function in a thread cannot be interrupted: it should look from time to time,
        from whichever thread, and return.
        """

    def notify_changed(self, kind: ListKind) -> None:
        """Tell every client that a list changed, whether or not it did: `list_changed` of tools, prompts or resources.

        Seldom needed: reloads, `enable` and `disable` announce what they change.

        Raises:
            ToolError: there is no such kind.
        """

    def resource_updated(self, uri: str) -> None:
        """Tell the clients that subscribed to this URI, and may read it, that its contents changed.

        A URI that nobody subscribed to, or that nothing serves, is no error.
        """

    def enable(self, kind: ListKind, name: str) -> None:
        """Offer again what `disable` took away, to all callers, and announce the changed list.

        Args:
            kind: The section of the file.
            name: The definition's key in the file, of resources too, rather than a URI. All files of a skill are the
                resource `skill://<its name>`.

        Raises:
            ToolError: there is no such kind.
            ExecutionError: the file has no such definition. The base class of `ToolError`; uncaught, it ends the call
                in the same way.
        """

    def disable(self, kind: ListKind, name: str) -> None:
        """Take a definition off its list, for all callers, and announce the changed list.

        Calls that run go on. It stays off through reloads for as long as the file has the name, and until the process
        ends.

        Args:
            kind: The section of the file.
            name: The definition's key in the file, of resources too, rather than a URI. All files of a skill are the
                resource `skill://<its name>`.

        Raises:
            ToolError: there is no such kind.
            ExecutionError: the file has no such definition. The base class of `ToolError`; uncaught, it ends the call
                in the same way.
        """


class Context(_Facts, Protocol):
    """The context of one call, for async functions. To be used on the event loop, not from other threads.

    `progress`, `log` and `close_stream` send when they are called, in the order of the calls, and before the call's
    result. To await what they return is to wait until it is sent. Do so where much is sent quickly: of what a slow
    client has not taken at most 1000 messages are kept, and further ones are dropped.

    Once the call has ended, these three do nothing, and what asks the client raises `ToolError`.
    """

    @property
    def http(self) -> "HttpClient":
        """The HTTP client that all functions share; it passes the call's trace on. Do not close it.

        Private, loopback and link-local addresses are refused.
        """

    def progress(self, value: float, total: float | None = None, message: str | None = None) -> Awaitable[None]:
        """Report progress, if the client sent a progress token.

        Every 15 seconds without a report the client is told that the call still runs.

        Args:
            value: The progress so far, in any unit. Values must grow: one that does not, or that is not finite, is
                dropped.
            total: The value at the end, in the same unit, if it is known.
            message: A line for people (since 2025-03-26). Secrets are masked.
        """

    def log(self, level: LogLevel, data: Json, logger: str | None = None) -> Awaitable[None]:
        """Send a log message to the client, if it asked for messages of this level.

        Until 2025-11-25 it does so with `logging/setLevel`, since 2026-07-28 with each request. The gateway's own log
        is another: `logging` and `structlog` write to it.

        Args:
            level: A severity of RFC 5424.
            data: Any JSON value. Secrets are masked.
            logger: The name of the part of the program that the message comes from.

        Raises:
            ToolError: there is no such level, or the data is not JSON.
        """

    async def elicit(self, key: str, message: str, schema: JsonObject) -> Answer:
        """Ask the user to fill in a form (since 2025-06-18; the client needs `elicitation`).

        Never ask for secrets this way (client/elicitation, "Security"): see `elicit_url`.

        Args:
            key: The name of this question within the call; see the module's text.
            message: What the user reads above the form.
            schema: A flat JSON Schema: `{"type": "object", "properties": {…}}` whose properties are strings, numbers,
                integers, booleans, or choices (`enum`, `oneOf`; lists of choices since 2025-11-25).

        Raises:
            ToolError: the schema is not of that shape, the key belongs to another question of this call, or nothing can
                be asked here: completions cannot ask.
            ExecutionError: the client refused, answered what does not fit, or did not answer within `ask_timeout`; or
                its revision has no form for this.
            RpcError: the client did not declare the capability. The base class of `ProtocolError`; to be left uncaught.
        """

    async def elicit_url(self, key: str, message: str, url: str) -> Answer:
        """Ask the user to open a page (since 2025-11-25; the client needs `elicitation.url`).

        `accept` says that the user was willing to open it, not that they are done there.

        Args:
            key: The name of this question within the call.
            message: Why the user should.
            url: An absolute `https://` or `http://` URL.

        Raises:
            ToolError: it is no such URL; otherwise as `elicit`.
            ExecutionError: as `elicit`.
            RpcError: as `elicit`.
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
        """Ask the client's model, within what `limits.sampling` allows (the client needs `sampling`).

        Args:
            key: The name of this question within the call.
            messages: One user's text; or messages of the protocol, each `{"role": "user" or "assistant", "content": a
                block or a list of blocks}`. Before 2025-11-25 a message has one block: text, an image, or since
                2025-03-26 audio.
            system_prompt: The client may change or leave it out.
            max_tokens: At least 1; `limits.sampling.max_tokens` cuts it down.
            temperature: In the model's own scale.
            stop_sequences: Texts at which the model stops.
            model_preferences: The protocol's `ModelPreferences`: `hints`, and priorities from 0 to 1.
            tools: Tools that the model may ask for, as the protocol's `Tool` (since 2025-11-25; the client needs
                `sampling.tools`). The function runs them itself and asks again.

        Raises:
            ToolError: the messages or `max_tokens` are not of that shape; otherwise as `elicit`.
            ExecutionError: `limits.sampling` allows no more; otherwise as `elicit`.
            RpcError: as `elicit`.
        """

    async def list_roots(self, key: str) -> Sequence[JsonObject]:
        """Ask for the directories that the client works in (the client needs `roots`).

        Args:
            key: The name of this question within the call.

        Returns:
            Objects with a `uri` that begins with `file://`, and a `name` where the client gives one.

        Raises:
            ToolError: as `elicit`.
            ExecutionError: as `elicit`.
            RpcError: as `elicit`.
        """

    async def ask(self, requests: Mapping[str, JsonObject]) -> Mapping[str, Json]:
        """Ask several questions at once; they are open at the same time.

        Args:
            requests: By key, requests of the protocol: `{"method": "elicitation/create" or "sampling/createMessage" or
                "roots/list", "params": {…}}`, with params in the form of 2026-07-28.

        Returns:
            By key, the client's results as it sent them: `{"action": …, "content": {…}}` for elicitation,
            `{"content": …, "model": …}` for sampling, `{"roots": […]}` for roots. They are checked as by `elicit`,
            `sample` and `list_roots`.

        Raises:
            ToolError: a request is not of that shape; otherwise as `elicit`.
            ExecutionError: as `sample`; the other questions are withdrawn.
            RpcError: as `elicit`.
        """

    async def ask_before(self, requests: Mapping[str, JsonObject]) -> Mapping[str, Json]:
        """Ask several questions, before there is a task if there is none yet; otherwise as `ask`.

        For a call that may become a task (`task:` in the file), whatever its `ask` says. Such questions come first: an
        async function asks them before it waits for anything else. In a function that runs in a thread, or that waits
        first, only `ask: before` or `after` leave time for them; what comes too late is asked inside the task.
        """

    async def ask_inside(self, requests: Mapping[str, JsonObject]) -> Mapping[str, Json]:
        """Ask several questions, inside the task if the call may become one; otherwise as `ask`."""

    async def once(self, key: str, function: Callable[[], Awaitable[T]]) -> T:
        """Run a step once for this call, however often the client has to try again.

        A client of 2026-07-28 carries the result from try to try: it can read it, and not change it, and 64 KiB is all
        that fits with the answers. So keep no secrets here, but a name by which you find them. A client that comes
        back without it makes the function run again.

        Args:
            key: The name of this step within the call.
            function: Called without arguments, unless its result is there already. If it raises, nothing is kept.

        Returns:
            The function's result after a way through JSON, in the first try, too: tuples have become lists.

        Raises:
            TypeError: the result is not JSON: None, booleans, numbers, strings, lists and dictionaries.
            ValueError: the result holds a secret of the configuration.
            ToolError: nothing can be asked here, or the call has ended.
        """

    def close_stream(self, retry_ms: int | None = None) -> Awaitable[None]:
        """Close the call's event stream, and let the client come back for what follows (since 2025-11-25).

        For long calls: no connection is held open meanwhile, and progress and result wait for the client. Does nothing
        for other revisions and transports, where the client could not come back.

        Args:
            retry_ms: Milliseconds after which the client should come back: 0 or more; None for 1000.

        Raises:
            ToolError: the number is negative.
        """

    async def read_resource(self, uri: str) -> Sequence[JsonObject]:
        """Read a resource of this server, with the rights of this caller.

        Returns:
            The protocol's `ReadResourceResult.contents`: objects with `uri`, `mimeType`, and `text` or a base64 `blob`.

        Raises:
            ExecutionError: too many reads at once, or too often, for the resource's limits.
            RpcError: nothing serves the URI, it could not be read, or this caller lacks a scope for it. The base class
                of `ProtocolError`; uncaught, the call ends with an error that says so.
        """


class SyncContext(_Facts, Protocol):
    """The context of one call, for plain functions, which run in a thread.

    Every method is that of `Context` and blocks the calling thread until it is done. It may be called from any thread
    but the event loop's. Once the call has ended, every method raises `ToolError`, and so does one that still waits: a
    function that outlived its deadline ends at its next word to the client.
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
