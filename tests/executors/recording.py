"""Fakes of contexts, permits and configuration places."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_hex
from types import MappingProxyType
from typing import Final, TypeVar

import aiohttp

from gateway.access.identity import Subject
from gateway.config.diagnostics.problems import Problems
from gateway.deadline import Deadline
from gateway.errors import Location
from gateway.json_types import DocumentPath, Json, JsonObject
from gateway.language.scope import Inputs, Scope
from gateway.plugin import Answer, Caller, Context, ListKind, LogLevel, Sample, Task
from gateway.protocol.envelope import Envelope
from gateway.telemetry.trace import UNTRACED, Trace
from gateway.threads import Permit

T = TypeVar("T")

NOTHING: JsonObject = MappingProxyType({})


LOCAL: Final = Subject("")


@dataclass(kw_only=True)
class RecordingContext:
    """A `Context` that records calls and has no client."""

    request_meta: JsonObject = field(default_factory=dict)
    caller: Caller | None = None
    principal: str | None = None
    client: JsonObject = field(default_factory=dict)
    client_capabilities: JsonObject = field(default_factory=dict)
    protocol_version: str = "2026-07-28"
    progress_token: str | int | None = "token"
    cancelled: bool = False
    task: Task | None = None
    session: aiohttp.ClientSession | None = None
    progressed: list[tuple[float, float | None, str | None]] = field(default_factory=list)
    logged: list[tuple[LogLevel, Json, str | None]] = field(default_factory=list)
    changed: list[object] = field(default_factory=list)
    """Arguments of `notify_changed`, `resource_updated`, `enable` and `disable`."""

    @property
    def http(self) -> aiohttp.ClientSession:
        assert self.session is not None, "the context has no HTTP session"
        return self.session

    async def progress(self, value: float, total: float | None = None, message: str | None = None) -> None:
        self.progressed.append((value, total, message))

    async def log(self, level: LogLevel, data: Json, logger: str | None = None) -> None:
        self.logged.append((level, data, logger))

    def notify_changed(self, kind: ListKind) -> None:
        self.changed.append(kind)

    def resource_updated(self, uri: str) -> None:
        self.changed.append(uri)

    def enable(self, kind: ListKind, name: str) -> None:
        self.changed.append(("enable", kind, name))

    def disable(self, kind: ListKind, name: str) -> None:
        self.changed.append(("disable", kind, name))

    async def elicit(self, key: str, message: str, schema: JsonObject) -> Answer:
        raise NotImplementedError

    async def elicit_url(self, key: str, message: str, url: str) -> Answer:
        raise NotImplementedError

    async def sample(
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
        raise NotImplementedError

    async def list_roots(self, key: str) -> Sequence[JsonObject]:
        raise NotImplementedError

    async def ask(self, requests: Mapping[str, JsonObject]) -> Mapping[str, Json]:
        raise NotImplementedError

    async def ask_before(self, requests: Mapping[str, JsonObject]) -> Mapping[str, Json]:
        raise NotImplementedError

    async def ask_inside(self, requests: Mapping[str, JsonObject]) -> Mapping[str, Json]:
        raise NotImplementedError

    async def once(self, key: str, function: Callable[[], Awaitable[T]]) -> T:
        return await function()

    async def close_stream(self, retry_ms: int | None = None) -> None:
        raise NotImplementedError

    async def read_resource(self, uri: str) -> Sequence[JsonObject]:
        raise NotImplementedError


@dataclass
class RecordingPermit:
    """A permit that records its holders."""

    held_by: list[asyncio.Task[None]] = field(default_factory=list)

    def suspend(self) -> None:
        pass

    def force_resume(self) -> None:
        pass

    def hold_until_done(self, task: asyncio.Task[None]) -> None:
        self.held_by.append(task)

    async def freed(self) -> None:
        """Wait until the permit has no holders."""
        async with asyncio.timeout(15):
            await asyncio.gather(*self.held_by)


@dataclass(frozen=True, kw_only=True)
class RecordedCall:
    """An `InvokedCall` with fixed values."""

    caller: "RecordedSender"
    rights: Hashable = None
    terms: Envelope = field(default_factory=lambda: Envelope("2026-07-28", NOTHING, NOTHING, None))
    client_key: str = ""
    id: str = field(default_factory=lambda: token_hex(6))
    wants_progress: bool = True
    output_seconds: float | None = None
    announce: Callable[[str, JsonObject], object] | None = None


@dataclass(frozen=True, kw_only=True)
class RecordedSender:
    owner_key: str
    headers: Mapping[str, str]
    subject: Subject


@dataclass(frozen=True, kw_only=True)
class RecordedInvocation:
    """An `Invocation` with fixed values."""

    arguments: JsonObject
    context: Context
    deadline: Deadline
    permit: Permit
    call: RecordedCall
    trace: Trace = UNTRACED
    caller_values: bytes = b""

    @property
    def variables(self) -> JsonObject:
        return self.arguments

    def narrowed(self, *, arguments: JsonObject, deadline: Deadline) -> "RecordedInvocation":
        return replace(self, arguments=arguments, deadline=deadline)


def make_invocation(
    arguments: JsonObject = NOTHING,
    *,
    context: Context | None = None,
    permit: RecordingPermit | None = None,
    timeout: float = 20.0,
    waited: float = 0.0,
    caller: str = "tester",
    rights: Hashable = None,
    headers: Mapping[str, str] = MappingProxyType({}),
    subject: Subject = LOCAL,
) -> RecordedInvocation:
    """Return a call with a deadline in `timeout` seconds that has waited for `waited` seconds. Needs a running loop."""
    return RecordedInvocation(
        arguments=arguments,
        context=context or RecordingContext(),
        deadline=Deadline(asyncio.get_running_loop().time() + timeout, waited + timeout),
        permit=permit or RecordingPermit(),
        call=RecordedCall(caller=RecordedSender(owner_key=caller, headers=headers, subject=subject), rights=rights),
    )


@dataclass(frozen=True)
class OneFile:
    """A source map with all nodes in one directory, without lines."""

    folder: Path

    def locate(self, path: DocumentPath) -> tuple[Location | None, str]:
        return None, ""

    def directory(self, path: DocumentPath) -> Path:
        return self.folder


def make_scope(
    schemas: Mapping[str, JsonObject] = NOTHING,
    *,
    optional: Sequence[str] = (),
    is_open: bool = False,
    names: Sequence[str] = (),
    folder: Path = Path("/"),
) -> Scope:
    """Return a scope with these inputs. All except `optional` are required."""
    inputs = Inputs(schemas=schemas, always_given=frozenset(schemas) - frozenset(optional), is_open=is_open)
    return Scope(inputs=inputs, problems=Problems(OneFile(folder)), names=frozenset(names))


def messages_of(scope: Scope) -> list[str]:
    """Return all problems as `path: message`."""
    return [str(problem) for problem in scope.problems]
