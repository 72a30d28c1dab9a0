"""Runs the tests of tools: makes each call through the dispatcher, and compares the results.

Commands and functions really run. HTTP backends use a stub server on loopback if the test defines its response.
`confirm` is accepted.
"""

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from difflib import get_close_matches
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway.access.claims import identity_of_claims
from gateway.access.identity import ANONYMOUS
from gateway.catalog.primitives import Tool
from gateway.cli.client.file_arguments import data_uri
from gateway.cli.commands.test.comparison import Mismatch, mismatch
from gateway.cli.commands.test.stub_server import StubServer, diverted_to
from gateway.cli.dry_run import DryRun, offline_gateway
from gateway.config.models.tool_tests import ToolTest
from gateway.config.settings import Settings
from gateway.errors import ConfigError, ExecutionError, Problem, RpcError
from gateway.executors.output.media_types import OCTETS
from gateway.json_types import DocumentPath, Json, JsonObject
from gateway.language.files.decoding import FilePlaces, FileRule
from gateway.language.files.media_types import media_type_of
from gateway.protocol.call.input_requests.requests import CONFIRMATION_KEY
from gateway.transports.memory import MemoryClient

_CAPABILITIES: Final[JsonObject] = {"elicitation": {"form": {}}}
_ACCEPT: Final[JsonObject] = {"action": "accept", "content": {}}


class Grade(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    tool: str
    name: str
    grade: Grade
    seconds: float = 0.0
    reason: str = ""
    """Why the test did not pass, on one line."""
    difference: tuple[str, ...] = ()
    """Difference from the expectation. See `Mismatch`."""


async def run_tests(settings: Settings, patterns: Sequence[str] = ()) -> AsyncIterator[Verdict]:
    """Run the tests of the tools that match one of the globs, or all tests.

    Raises:
        ConfigError: the file cannot be served, or a glob matches no tool.
    """
    async with offline_gateway(settings) as dry:
        tools = dry.loaded.document.tools
        _check_patterns(patterns, list(tools))
        for name, config in tools.items():
            if patterns and not any(fnmatchcase(name, pattern) for pattern in patterns):
                continue
            for index, test in enumerate(config.tests):
                yield await _Attempt(dry, name, index, test).verdict()


def _check_patterns(patterns: Sequence[str], names: Sequence[str]) -> None:
    problems = []
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = get_close_matches(pattern, names, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            problems.append(Problem(path=pattern, message=f"no tool of the file is called so{hint}"))
    if problems:
        raise ConfigError(problems)


class _Attempt(msgspec.Struct, frozen=True):
    """One run of a test."""

    dry: DryRun
    tool: str
    index: int
    test: ToolTest

    async def verdict(self) -> Verdict:
        redactor = self.dry.loaded.redactor
        name = redactor.text(self.test.name or f"test {self.index + 1}")
        tool = self.dry.catalog.tools.get(self.tool)
        if tool is None:
            return Verdict(tool=self.tool, name=name, grade=Grade.SKIPPED, reason=self._why_left_out())
        began = time.monotonic()
        found = await self._mismatch(tool)
        seconds = time.monotonic() - began
        if found is None:
            return Verdict(tool=self.tool, name=name, grade=Grade.PASSED, seconds=seconds)
        return Verdict(
            tool=self.tool,
            name=name,
            grade=Grade.FAILED,
            seconds=seconds,
            reason=redactor.text(found.reason),
            difference=tuple(map(redactor.text, found.difference)),
        )

    def _why_left_out(self) -> str:
        left_out = self.dry.catalog.left_out
        reasons: Iterator[str] = (each.reason for each in left_out if (each.kind, each.name) == ("tools", self.tool))
        return next(reasons, "it is not available")

    async def _mismatch(self, tool: Tool) -> Mismatch | None:
        try:
            async with self._with_stub(tool) as prepared:
                result = await _confirmed(self._client(prepared), self.tool, self._arguments(tool))
        except (ExecutionError, ValueError) as error:
            return Mismatch(str(error))
        except RpcError as error:
            # `expect.error` matches protocol errors and failed results.
            result = {"isError": True, "content": [{"type": "text", "text": error.message}]}
        if result.get("resultType") == "input_required":
            return Mismatch("asks its user for more than a yes, which nobody can answer here")
        return mismatch(result, self.test.expect)

    @asynccontextmanager
    async def _with_stub(self, tool: Tool) -> AsyncIterator[Tool]:
        if self.test.http is None:
            yield tool
            return
        async with StubServer(self.test.http, directory=self._directory()) as stub:
            yield replace(tool, executor=diverted_to(tool.executor, stub))

    def _arguments(self, tool: Tool) -> JsonObject:
        """Return the arguments, with the content of files such as `photo: {file: photo.png}`."""
        place = self.dry.loaded.start_problems().at("tools", self.tool, "tests", self.index, "with")
        return _given_files(self.test.with_, tool.arguments.files, directory=place.directory)

    def _directory(self) -> Path:
        place = self.dry.loaded.start_problems().at("tools", self.tool, "tests", self.index, "http", "file")
        return place.directory

    def _client(self, tool: Tool) -> MemoryClient:
        catalog = self.dry.catalog
        # A separate catalog, because the stub is only for this test. Without `task: required`, the result is the same.
        offered = replace(catalog, tools={**catalog.tools, self.tool: replace(tool, task=None)})
        claims, auth = self.test.caller, self.dry.loaded.document.auth
        identity = ANONYMOUS if claims is None else identity_of_claims(claims, auth)
        return self.dry.client(offered, capabilities=_CAPABILITIES, identity=identity)


async def _confirmed(client: MemoryClient, tool: str, arguments: JsonObject) -> JsonObject:
    """Call a tool, and accept its confirmation."""
    params: dict[str, Json] = {"name": tool, "arguments": arguments}
    result = await client.request("tools/call", params)
    # A test cannot answer other input requests.
    if result.get("resultType") != "input_required" or set(result["inputRequests"]) != {CONFIRMATION_KEY}:
        return result
    state = {key: value for key, value in result.items() if key == "requestState"}
    return await client.request("tools/call", {**params, "inputResponses": {CONFIRMATION_KEY: _ACCEPT}, **state})


def _given_files(arguments: JsonObject, places: FilePlaces | None, *, directory: Path) -> JsonObject:
    """Replace files that a test names (`photo: {file: photo.png}`) with `data:` URIs.

    Paths are relative to `directory`.

    Raises:
        ExecutionError: a file cannot be read.
    """
    if places is None:
        return arguments

    def read(value: Json, rule: FileRule | None, _path: DocumentPath) -> Json:
        match value:
            case {"file": str(name), **others} if rule is not None and not others:
                return _data_uri(directory / name)
            case _:
                return value

    given: JsonObject = places.replaced(arguments, read)
    return given


def _data_uri(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ExecutionError(f"the test's file {path} cannot be read: {error.strerror}") from error
    return data_uri(content, media_type=media_type_of(path) or OCTETS, name=path.name)
