"""Compile the backend of a tool or resource: the one key that says how its work is done."""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.catalog.workbench import Workbench
from gateway.config.backends import Connection, PythonCall
from gateway.config.content import Block
from gateway.config.definitions import Definition
from gateway.config.path_kinds import is_file
from gateway.config.primitives import Resource, Tool
from gateway.config.problems import Problems
from gateway.executors.cache import CachingExecutor
from gateway.executors.content import ContentExecutor, compile_blocks, decoded_base64
from gateway.executors.explanation import Explanation
from gateway.executors.files.executor import FileReader, SingleFile
from gateway.executors.http.executor import compile_http
from gateway.executors.invocation import Executor, Invocation, Outcome, RawOutput
from gateway.executors.python.executor import compile_python
from gateway.executors.python.signature import Signature
from gateway.executors.scope import Scope
from gateway.executors.shell.executor import compile_shell
from gateway.executors.templates.templating import TextTemplate, compile_text


def signature_of(config: PythonCall | None, *, problems: Problems, bench: Workbench) -> Signature | None:
    """The function that `python:` names; None without one, or where it cannot be had, which is then reported."""
    if config is None:
        return None
    heard = problems.at("call")
    return bench.plugins.signature(config.call, heard if bench.plugins.holds(config.call) else bench.unheard or heard)


def described(config: Definition, signature: Signature | None) -> str | None:
    """What the file says it is for, or else the function's docstring."""
    return config.description or (signature.description if signature else None) or None


def compile_backend(
    config: Tool | Resource, *, signature: Signature | None, scope: Scope, bench: Workbench, max_size: int
) -> Executor | None:
    """Make the backend ready, to bring at most `max_size` bytes; None where it is a function that cannot be had."""
    executor = _COMPILERS[config.backend](_Definition(config, signature, scope, bench, max_size))
    if config.cache is None or executor is None:
        return executor
    return CachingExecutor(
        executor=executor,
        ttl=config.cache,
        cache=bench.services.cache,
        key_prefix=_identity(config, signature, scope=scope, bench=bench),
    )


def connection_of(config: Tool | Resource, *, bench: Workbench) -> Connection | None:
    """What it shares with others that call the same service."""
    return None if config.http is None else bench.connections.get(config.http.connection or "")


def watch_missing(blocks: Sequence[Block], *, problems: Problems, bench: Workbench) -> None:
    """Blocks read their files at each call; of one that is not there yet it matters when it comes."""
    for block in blocks:
        source = block.image or block.audio or block.resource
        if source is not None and source.file is not None and not is_file(problems.directory / source.file):
            bench.footprint.files.add(problems.directory / source.file)


def _identity(config: Tool | Resource, signature: Signature | None, *, scope: Scope, bench: Workbench) -> str:
    """What tells it from others, and from itself before it, its plugin's code or its connection was changed."""
    code = signature.function.__module__ if signature else ""  # named after the content of the plugin's directory
    facts = f"{code} {config!r} {connection_of(config, bench=bench)!r}"
    return f"{scope.problems.path} {hashlib.sha256(facts.encode()).hexdigest()}"


@dataclass(frozen=True, slots=True)
class _Definition:
    config: Tool | Resource
    signature: Signature | None
    scope: Scope
    bench: Workbench
    max_size: int

    @property
    def reader(self) -> FileReader:
        return FileReader(threads=self.bench.services.threads, max_size=self.max_size)


def _shell(given: _Definition) -> Executor:
    assert given.config.shell is not None  # noqa: S101 - the table's key says so; the same below
    return compile_shell(
        given.config.shell,
        scope=given.scope.at("shell"),
        services=given.bench.services,
        redactor=given.bench.redactor,
        max_output=given.max_size,
    )


def _http(given: _Definition) -> Executor:
    assert given.config.http is not None  # noqa: S101
    bench, config = given.bench, given.config
    return compile_http(
        given.config.http,
        connections=bench.connections,
        scope=given.scope.at("http"),
        services=bench.services,
        redactor=bench.redactor,
        idempotent=isinstance(config, Tool) and config.annotations is not None and bool(config.annotations.idempotent),
    )


def _python(given: _Definition) -> Executor | None:
    assert given.config.python is not None  # noqa: S101
    if given.signature is None:
        given.scope.use_all()  # whatever it takes: that the function is missing has been said
        return None
    return compile_python(
        given.config.python, given.signature, scope=given.scope.at("python"), threads=given.bench.services.threads
    )


def file_of(config: Resource, *, problems: Problems) -> str:
    """Where the one file of a resource lies."""
    return os.path.normpath(problems.at("file").directory / (config.file or ""))


def _content(given: _Definition) -> Executor:
    assert isinstance(given.config, Tool)  # noqa: S101
    scope, written = given.scope.at("content"), given.config.content or []
    watch_missing(written, problems=scope.problems, bench=given.bench)
    blocks = compile_blocks(written, scope=scope, reader=given.reader)
    return ContentExecutor(blocks=blocks, is_error=given.config.is_error)


def _text(given: _Definition) -> Executor:
    assert isinstance(given.config, Resource)  # noqa: S101
    return _WrittenText(compile_text(given.config.text or "", given.scope.at("text")))


def _blob(given: _Definition) -> Executor:
    assert isinstance(given.config, Resource)  # noqa: S101
    return _WrittenBytes(decoded_base64(given.config.blob or "", scope=given.scope.at("blob")))


def _file(given: _Definition) -> Executor:
    assert isinstance(given.config, Resource)  # noqa: S101
    problems = given.scope.problems.at("file")
    path = file_of(given.config, problems=given.scope.problems)
    given.bench.footprint.files.add(Path(path))
    if not is_file(path):
        problems.warning(f"there is no file `{given.config.file}` now")
    return SingleFile(path=path, uri=given.config.uri or "", reader=given.reader)


_COMPILERS: Final[dict[str, Callable[[_Definition], Executor | None]]] = {
    "shell": _shell,
    "http": _http,
    "python": _python,
    "content": _content,
    "text": _text,
    "blob": _blob,
    "file": _file,
}
"""`files` is no backend of one resource, but many resources: see `gateway.catalog.resources`."""


@dataclass(frozen=True, slots=True)
class _WrittenText:
    template: TextTemplate

    def explain(self, _invocation: Invocation) -> Explanation:
        return Explanation(does="gives a text that the file fixes")

    async def execute(self, invocation: Invocation) -> Outcome:
        return RawOutput(data=self.template.render(invocation.arguments).encode(), media_type="text/plain")


@dataclass(frozen=True, slots=True)
class _WrittenBytes:
    data: bytes

    def explain(self, _invocation: Invocation) -> Explanation:
        return Explanation(does="gives bytes that the file fixes", facts={"bytes": len(self.data)})

    async def execute(self, _invocation: Invocation) -> Outcome:
        return RawOutput(data=self.data, is_blob=True)
