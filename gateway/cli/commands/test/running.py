"""Runs the tests of tools by calling each tool through the dispatcher and comparing the result.

Commands and functions are executed. If the test defines a response, no HTTP request is sent. Confirmations are skipped.
"""

import json
import re
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from difflib import ndiff
from enum import StrEnum
from fnmatch import fnmatchcase
from http import HTTPStatus
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import orjson
from msgspec.structs import replace
from multidict import CIMultiDict, CIMultiDictProxy

from gateway import exact_json
from gateway.access.claims import identity_of_claims
from gateway.access.identity import ANONYMOUS
from gateway.catalog.primitives import Tool
from gateway.cli.dry_run import DryRun, offline_gateway
from gateway.config.diagnostics.near_misses import did_you_mean
from gateway.config.models.tool_tests import Expectation, StubResponse, TextMatch, ToolTest
from gateway.config.settings import Settings
from gateway.errors import ConfigError, ExecutionError, Problem, RpcError
from gateway.executors.cache import CachingExecutor
from gateway.executors.http.executor import HttpExecutor
from gateway.executors.invocation import Executor
from gateway.executors.output.media_types import OCTETS
from gateway.json_types import ABSENT, DocumentPath, Json, JsonObject
from gateway.language.files.decoding import FileLocator, FileRule, data_uri
from gateway.language.files.media_types import media_type_of
from gateway.net.request import Request
from gateway.net.sender import Response


class Mismatch(NamedTuple):
    reason: str
    difference: tuple[str, ...] = ()
    """Lines of a diff: `- ` marks expected lines, `+ ` marks received lines, and two spaces mark common lines."""


class Grade(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    tool: str
    name: str
    grade: Grade
    seconds: float
    reason: str
    difference: tuple[str, ...]


async def run_tests(settings: Settings, patterns: Sequence[str] = ()) -> AsyncIterator[Verdict]:
    """Run the tests of all tools, or of the tools whose name matches one of the glob `patterns`."""
    async with offline_gateway(settings) as dry:
        tools = dry.loaded.document.tools
        _check_patterns(patterns, list(tools))
        for name, config in tools.items():
            if patterns and not any(fnmatchcase(name, pattern) for pattern in patterns):
                continue
            for index, test in enumerate(config.tests):
                yield await _verdict(dry, name, index, test)


def _check_patterns(patterns: Sequence[str], names: Sequence[str]) -> None:
    problems = [
        Problem(path=pattern, message=f"the file contains no tool with this name{did_you_mean(pattern, names)}")
        for pattern in patterns
        if not any(fnmatchcase(name, pattern) for name in names)
    ]
    if problems:
        raise ConfigError(problems)


async def _verdict(dry: DryRun, name: str, index: int, test: ToolTest) -> Verdict:
    mask, tool, began = dry.loaded.redactor.text, dry.catalog.tools.get(name), time.monotonic()
    if tool is None:
        left_out = (each.reason for each in dry.catalog.left_out if (each.kind, each.name) == ("tools", name))
        grade, found = Grade.SKIPPED, Mismatch(next(left_out, "the tool is not available"))
    else:
        found = await _mismatch_of(dry, tool, index, test) or Mismatch("")
        grade = Grade.FAILED if found.reason else Grade.PASSED
    return Verdict(
        tool=name,
        name=mask(test.name or f"test {index + 1}"),
        grade=grade,
        seconds=time.monotonic() - began,
        reason=mask(found.reason),
        difference=tuple(map(mask, found.difference)),
    )


async def _mismatch_of(dry: DryRun, tool: Tool, index: int, test: ToolTest) -> Mismatch | None:
    place, auth = dry.loaded.start_problems().at("tools", tool.name, "tests", index), dry.loaded.document.auth
    try:
        identity = ANONYMOUS if test.caller is None else identity_of_claims(test.caller, auth)
        arguments = _given_files(test.with_, tool.arguments.files, directory=place.at("with").directory)
        executor = tool.executor
        if test.http is not None:
            executor = _with_stub(executor, _stub_of(test.http, directory=place.at("http", "file").directory))
        # Use a separate catalog, because the stub belongs to this test. A confirmation or a task would not change the
        # result.
        prepared = replace(tool, executor=executor, confirm=None, task=None)
        offered = replace(dry.catalog, tools={**dry.catalog.tools, tool.name: prepared})
        client = dry.client(offered, capabilities={"elicitation": {"form": {}}}, identity=identity)
        result = await client.request("tools/call", {"name": tool.name, "arguments": arguments})
    except (ExecutionError, ValueError) as error:
        return Mismatch(str(error))
    except RpcError as error:
        # `expect.error` matches protocol errors and failed results.
        result = {"isError": True, "content": [{"type": "text", "text": error.message}]}
    if result.get("resultType") == "input_required":
        return Mismatch("requires user input other than a confirmation, which tests cannot provide")
    return mismatch(result, test.expect)


def _given_files(arguments: JsonObject, files: FileLocator | None, *, directory: Path) -> JsonObject:
    """Replace each argument that names a file, such as `photo: {file: photo.png}`, with a `data:` URI.

    File names are relative to `directory`.

    Raises:
        ExecutionError: a file cannot be read.
    """
    if files is None:
        return arguments

    def read(value: Json, rule: FileRule | None, _path: DocumentPath) -> Json:
        match value:
            case {"file": str(name), **others} if rule is not None and not others:
                return _data_uri(directory / name)
            case _:
                return value

    given: JsonObject = files.replaced(arguments, read)
    return given


def _data_uri(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ExecutionError(f"the test's file {path} cannot be read: {error.strerror}") from error
    return data_uri(content, media_type=media_type_of(path) or OCTETS, name=path.name)


_MAX_LINES: Final = 60


def mismatch(result: JsonObject, expected: Expectation | None) -> Mismatch | None:
    """Compare a `tools/call` result with the expectation. Return None if the result matches."""
    text = _text_of(result)
    failed = result.get("isError") is True
    if expected is not None and expected.error is not None:
        if not failed:
            return Mismatch("expected an error, but the call succeeded", _received(text))
        return _text_mismatch(text, expected.error, what="error")
    if failed:
        return Mismatch("failed", _received(text))
    if expected is None:
        return None
    if expected.text is not None:
        return _text_mismatch(text, expected.text, what="text")
    return _json_mismatch(_json_of(result, text), expected.json_, text)


def _text_of(result: JsonObject) -> str:
    return "\n".join(block["text"] for block in result.get("content", ()) if block.get("type") == "text")


def _json_of(result: JsonObject, text: str) -> Json:
    if "structuredContent" in result:
        return result["structuredContent"]
    try:
        return exact_json.loads(text)
    except orjson.JSONDecodeError:
        return ABSENT


def _text_mismatch(received: str, expected: TextMatch, *, what: str) -> Mismatch | None:
    received = received.rstrip("\n")
    if expected.is_ is not None:
        whole = expected.is_.rstrip("\n")
        return None if received == whole else Mismatch(f"the {what} is different", _difference(whole, received))
    if expected.contains is not None:
        if expected.contains in received:
            return None
        return Mismatch(f"the {what} does not contain {expected.contains!r}", _received(received))
    if re.search(expected.matches or "", received):
        return None
    return Mismatch(f"the {what} does not match {expected.matches}", _received(received))


def _json_mismatch(received: Json, expected: Json, text: str) -> Mismatch | None:
    if received is ABSENT:
        return Mismatch("expected JSON, but received text", _received(text))
    # In Python, 1 equals True, but not in JSON.
    if received == expected and _booleans_of(received) == _booleans_of(expected):
        return None
    return Mismatch("the JSON is different", _difference(_pretty(expected), _pretty(received)))


def _booleans_of(value: Json) -> Json:
    match value:
        case dict():
            return {name: _booleans_of(member) for name, member in value.items()}
        case list():
            return [_booleans_of(item) for item in value]
        case _:
            return isinstance(value, bool)


def _pretty(value: Json) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)


def _difference(expected: str, received: str) -> tuple[str, ...]:
    lines = ndiff(expected.splitlines(), received.splitlines())
    # Remove the `?` lines of ndiff, which point at characters that can be missing in truncated lines.
    return tuple(_cut(line for line in lines if not line.startswith("? ")))


def _received(text: str) -> tuple[str, ...]:
    return tuple(_cut(f"+ {line}" for line in text.splitlines()))


def _cut(lines: Iterator[str]) -> Iterator[str]:
    for index, line in enumerate(lines):
        if index == _MAX_LINES:
            yield "  …"
            return
        yield line[:500]


def _stub_of(answer: StubResponse, *, directory: Path) -> Response:
    """Return the response of a test. Raise ExecutionError if its file, relative to `directory`, cannot be read."""
    body = orjson.dumps(answer.json_) if answer.has_json else b""
    media_type = "application/json" if answer.has_json else OCTETS
    if answer.file is not None:
        try:
            body = (directory / answer.file).read_bytes()
        except OSError as error:
            raise ExecutionError(f"the file {answer.file} cannot be read: {error.strerror}") from error
        media_type = media_type_of(answer.file) or OCTETS
    reason = HTTPStatus(answer.status).phrase if answer.status in set(HTTPStatus) else ""
    fields = CIMultiDictProxy(CIMultiDict({"Content-Type": media_type}))
    return Response(status=answer.status, reason=reason, headers=fields, body=body)


def _with_stub(executor: Executor, response: Response) -> Executor:
    """Return a copy of the executor that has no cache and always receives `response`."""
    match executor:
        case CachingExecutor():
            return _with_stub(executor.executor, response)
        case HttpExecutor():
            # Remove the authorization, because fetching a token could contact a real server.
            return replace(executor, sender=_StubSender(response), authorization=None)
    raise TypeError(f"{type(executor).__name__} sends no HTTP requests")


class _StubSender(msgspec.Struct, frozen=True):
    """Returns the same response to every request, and sends nothing."""

    response: Response
    max_redirects: int = 0

    async def send(self, _request: Request, *, deadline: float) -> Response:  # noqa: ARG002 - as `Sender.send`
        return self.response
