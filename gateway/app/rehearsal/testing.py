"""Make the calls that stand under `tests:`, each the whole way of a real one, and judge what comes out.

Commands and functions run, and HTTP backends send, but to a server on loopback where the test says what it answers. A
tool that would be confirmed gets a yes.
"""

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from gateway.app.rehearsal.comparison import Mismatch, mismatch
from gateway.app.rehearsal.rehearsal import Rehearsal, rehearsed_for_real
from gateway.app.rehearsal.stand_in import StandIn, asking
from gateway.catalog.primitives import Tool
from gateway.config.loader import LoadedConfig
from gateway.config.path_kinds import is_file
from gateway.config.problems import Problems
from gateway.config.settings import Settings
from gateway.config.tool_tests import ToolTest
from gateway.errors import ConfigError, ExecutionError, Problem, RpcError
from gateway.json_types import Json, JsonObject
from gateway.protocol.questions import CONFIRMATION_KEY
from gateway.transports.memory import MemoryClient

_CAPABILITIES: Final[JsonObject] = {"elicitation": {"form": {}}}
_YES: Final[JsonObject] = {"action": "accept", "content": {}}


class Grade(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one test."""

    tool: str
    name: str
    grade: Grade
    seconds: float = 0.0
    reason: str = ""
    """Why it did not pass, in a line."""
    difference: tuple[str, ...] = ()
    """What came, beside what was expected: see `Mismatch`."""


async def run_tests(settings: Settings, patterns: Sequence[str] = ()) -> AsyncIterator[Verdict]:
    """Run the tests of the tools whose names fit one of the patterns, or of all, one after the other.

    Raises:
        ConfigError: the file cannot be served, or a pattern fits no tool.
    """
    async with rehearsed_for_real(settings) as rehearsal:
        tools = rehearsal.loaded.document.tools
        _check_patterns(patterns, list(tools))
        for name, config in tools.items():
            if patterns and not any(fnmatchcase(name, pattern) for pattern in patterns):
                continue
            for index, test in enumerate(config.tests):
                yield await _Attempt(rehearsal, name, index, test).verdict()


def check_test_files(loaded: LoadedConfig, problems: Problems) -> None:
    """Warn of answers that no test could give."""
    for name, tool in loaded.document.tools.items():
        for index, test in enumerate(tool.tests):
            if test.http is None or test.http.file is None:
                continue
            place = problems.at("tools", name, "tests", index, "http", "file")
            if not is_file(place.directory / test.http.file):
                place.warning(f"there is no file `{test.http.file}`")


def _check_patterns(patterns: Sequence[str], names: Sequence[str]) -> None:
    problems = []
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = get_close_matches(pattern, names, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            problems.append(Problem(path=pattern, message=f"no tool of the file is called so{hint}"))
    if problems:
        raise ConfigError(problems)


@dataclass(frozen=True, slots=True)
class _Attempt:
    rehearsal: Rehearsal
    tool: str
    index: int
    test: ToolTest

    async def verdict(self) -> Verdict:
        redactor = self.rehearsal.loaded.redactor
        name = redactor.text(self.test.name or f"test {self.index + 1}")
        tool = self.rehearsal.catalog.tools.get(self.tool)
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
        left_out = self.rehearsal.catalog.left_out
        reasons: Iterator[str] = (each.reason for each in left_out if (each.kind, each.name) == ("tools", self.tool))
        return next(reasons, "it is not on offer")

    async def _mismatch(self, tool: Tool) -> Mismatch | None:
        try:
            async with self._standing_in(tool) as prepared:
                result = await _confirmed(self._client(prepared), self.tool, self.test.with_)
        except ExecutionError as error:
            return Mismatch(str(error))
        except RpcError as error:
            result = {"isError": True, "content": [{"type": "text", "text": error.message}]}
        if result.get("resultType") == "input_required":
            return Mismatch("asks its user for more than a yes, which nobody can answer here")
        return mismatch(result, self.test.expect)

    @asynccontextmanager
    async def _standing_in(self, tool: Tool) -> AsyncIterator[Tool]:
        if self.test.http is None:
            yield tool
            return
        async with StandIn(self.test.http, directory=self._directory()) as stand_in:
            yield replace(tool, executor=asking(tool.executor, stand_in))

    def _directory(self) -> Path:
        place = self.rehearsal.loaded.start_problems().at("tools", self.tool, "tests", self.index, "http", "file")
        return place.directory

    def _client(self, tool: Tool) -> MemoryClient:
        catalog = self.rehearsal.catalog
        offered = replace(catalog, tools={**catalog.tools, self.tool: tool})
        return self.rehearsal.client(offered, capabilities=_CAPABILITIES)


async def _confirmed(client: MemoryClient, tool: str, arguments: JsonObject) -> JsonObject:
    """Call a tool, and say yes if it is to be confirmed."""
    params: dict[str, Json] = {"name": tool, "arguments": arguments}
    result = await client.request("tools/call", params)
    if result.get("resultType") != "input_required" or set(result["inputRequests"]) != {CONFIRMATION_KEY}:
        return result
    state = {key: value for key, value in result.items() if key == "requestState"}
    return await client.request("tools/call", {**params, "inputResponses": {CONFIRMATION_KEY: _YES}, **state})
