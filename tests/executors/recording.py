"""Stand-ins for what hands an executor its call: a context and a slot that remember, and places of a file."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import aiohttp

from gateway.config.problems import DocumentPath, Problems
from gateway.errors import Location
from gateway.executors.clock import Clock
from gateway.executors.invocation import Invocation
from gateway.executors.scope import Inputs, Scope
from gateway.json_types import Json, JsonObject
from gateway.plugin import Answer, Context, ListKind, LogLevel, Sample

T = TypeVar("T")

NOTHING: JsonObject = MappingProxyType({})


@dataclass(kw_only=True)
class RecordingContext:
    """A `Context` that keeps what it is told, and cannot ask anybody anything."""

    request_meta: JsonObject = field(default_factory=dict)
    principal: str | None = None
    client: JsonObject = field(default_factory=dict)
    client_capabilities: JsonObject = field(default_factory=dict)
    protocol_version: str = "2026-07-28"
    progress_token: str | int | None = "token"
    cancelled: bool = False
    session: aiohttp.ClientSession | None = None
    progressed: list[tuple[float, float | None, str | None]] = field(default_factory=list)
    logged: list[tuple[LogLevel, Json, str | None]] = field(default_factory=list)
    changed: list[object] = field(default_factory=list)
    """Arguments of `notify_changed`, `resource_updated`, `enable` and `disable`."""

    @property
    def http(self) -> aiohttp.ClientSession:
        assert self.session is not None, "this test gave the context no session"
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

    async def once(self, key: str, function: Callable[[], Awaitable[T]]) -> T:
        return await function()

    async def close_stream(self, retry_ms: int | None = None) -> None:
        raise NotImplementedError

    async def read_resource(self, uri: str) -> Sequence[JsonObject]:
        raise NotImplementedError


@dataclass
class RecordingSlot:
    """A `Slot` that remembers what holds it."""

    held_by: list[asyncio.Task[None]] = field(default_factory=list)

    def hold_until(self, task: asyncio.Task[None]) -> None:
        self.held_by.append(task)

    async def freed(self) -> None:
        """Wait until nothing holds it any more."""
        async with asyncio.timeout(15):
            await asyncio.gather(*self.held_by)


def make_invocation(
    arguments: JsonObject = NOTHING,
    *,
    context: Context | None = None,
    slot: RecordingSlot | None = None,
    timeout: float = 20.0,
    caller: str = "tester",
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Invocation:
    """One call, due `timeout` seconds from now; to be made while the loop runs."""
    return Invocation(
        arguments=arguments,
        context=context or RecordingContext(),
        clock=Clock(asyncio.get_running_loop().time() + timeout),
        slot=slot or RecordingSlot(),
        caller=caller,
        headers=headers,
    )


@dataclass(frozen=True)
class OneFile:
    """A source map whose every node stands in one directory, on no particular line."""

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
    """A place of a file where these inputs may be named; all are always given, but for the `optional` ones."""
    inputs = Inputs(schemas=schemas, always_given=frozenset(schemas) - frozenset(optional), is_open=is_open)
    return Scope(inputs=inputs, problems=Problems(OneFile(folder)), names=frozenset(names))


def messages_of(scope: Scope) -> list[str]:
    """What was found wrong so far, each as `path: message`."""
    return [str(problem) for problem in scope.problems]
