"""Compiles the backend of a tool or resource."""

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from gateway.catalog.compile.context import CompileContext
from gateway.catalog.compile.relayed import RelayBackend
from gateway.catalog.compile.sql import check_bound, compile_sql
from gateway.config.diagnostics.problems import Problems
from gateway.config.machine_facts import is_file
from gateway.config.models.backends import Connection, Http, PythonCall, Shell, Sql
from gateway.config.models.content import Block
from gateway.config.models.definition_keys import Definition, Output
from gateway.config.models.definitions import Prompt, Resource, Tool, trait_of
from gateway.executors.cache import CachingExecutor
from gateway.executors.content import compile_blocks, content_executor, decoded_base64
from gateway.executors.files.executor import FileReader, SingleFile
from gateway.executors.http.executor import compile_http
from gateway.executors.invocation import Executor, Explanation, FunctionExecutor, Invocation, Outcome, RawOutput
from gateway.executors.output.result_shaper import OutputTraits
from gateway.executors.python.executor import compile_python
from gateway.executors.python.signature import Signature
from gateway.executors.shell.executor import compile_shell
from gateway.language.scope import Scope
from gateway.language.templates.templating import compile_text


def signature_of(config: PythonCall | None, *, problems: Problems, context: CompileContext) -> Signature | None:
    """Return the signature of the function in `python:`, or None if `python:` is not set or an error was reported."""
    if config is None:
        return None
    # A missing plugin directory, which has been reported, can contain the module.
    if not context.has_all_plugins and not context.plugins.contains(config.call):
        return None
    return context.plugins.signature(config.call, problems.at("call"))


def described(config: Definition, signature: Signature | None) -> str | None:
    """Return the description in the file or, without one, the function's docstring."""
    return config.description or (signature.description if signature else None) or None


def compile_backend(
    config: Tool | Resource, *, signature: Signature | None, scope: Scope, context: CompileContext, max_size: int
) -> Executor:
    """Return the executor of a definition. The executor's result has at most `max_size` bytes."""
    _check_old_name(config, scope.problems.at("http", "cache"))
    written = getattr(config, config.backend)
    return BACKENDS[config.backend].compile(written, _Definition(config, signature, scope, context, max_size))


def _check_old_name(config: Tool | Resource, problems: Problems) -> None:
    if config.http is None or config.http.cache is None:
        return
    if config.cache is None:
        problems.warning("is deprecated. Move `cache` one level up, next to `http`")
    else:
        problems.error("means the same as `cache` next to `http`. Remove one of them")


def cached(
    executor: Executor, config: Tool | Resource | Prompt, version: str, *, problems: Problems, context: CompileContext
) -> Executor:
    """Add a cache to the executor if the definition has `cache`. A `cache_key` of the executor computes the keys."""
    ttl = cache_of(config)
    if ttl is None:
        return executor
    key_prefix = f"{problems.path} {version}"
    key_of = getattr(executor, "cache_key", None)
    return CachingExecutor(
        executor=executor, ttl=ttl, cache=context.services.cache, key_prefix=key_prefix, key_of=key_of
    )


def cache_of(config: Tool | Resource | Prompt) -> timedelta | None:
    """Return the lifetime of cached results from `cache`, or from the old key `http.cache`."""
    lifetime: timedelta | None = trait_of(config, "cache") if config.cache is None else config.cache
    return lifetime


def connection_of(config: Tool | Resource | Prompt, *, context: CompileContext) -> Connection | None:
    return context.connections.get(trait_of(config, "connection") or "")


def has_answer_per_caller(config: Tool | Resource | Prompt, *, context: CompileContext) -> bool:
    """Whether the connection authenticates as the caller, so that results can differ between callers."""
    connection = connection_of(config, context=context)
    return connection is not None and connection.auth is not None and connection.auth.is_per_caller


def with_defaults(output: Output | None, defaults: Output) -> Output:
    """Fill in unset members of a tool's `output` from the file's `defaults`."""
    said = {} if output is None else {name: getattr(output, name) for name in output.model_fields_set}
    return defaults.model_copy(update=said) if said else defaults


def watch_missing(blocks: Sequence[Block], *, problems: Problems, context: CompileContext) -> None:
    """Watch missing files that content blocks refer to. Existing files need no watch, and are read at each call."""
    for block in blocks:
        source = block.image or block.audio or block.resource
        if source is not None and source.file is not None and not is_file(problems.directory / source.file):
            context.dependencies.files.add(problems.directory / source.file)


class _Definition(msgspec.Struct, frozen=True):
    config: Tool | Resource
    signature: Signature | None
    scope: Scope
    context: CompileContext
    max_size: int

    @property
    def reader(self) -> FileReader:
        return FileReader(threads=self.context.services.worker_threads, max_size=self.max_size)


def _shell(shell: Shell, given: _Definition) -> Executor:
    return compile_shell(
        shell,
        scope=given.scope.at("shell"),
        services=given.context.services,
        redactor=given.context.redactor,
        max_output=given.max_size,
    )


def _http(http: Http, given: _Definition) -> Executor:
    context, config = given.context, given.config
    return compile_http(
        http,
        connections=context.connections,
        scope=given.scope.at("http"),
        services=context.services,
        redactor=context.redactor,
        authorizations=context.authorizations,
        idempotent=isinstance(config, Tool) and config.annotations is not None and bool(config.annotations.idempotent),
        output=with_defaults(config.output, context.defaults.output) if isinstance(config, Tool) else None,
    )


def _sql(sql: Sql, given: _Definition) -> Executor:
    executor = compile_sql(sql, scope=given.scope.at("sql"), context=given.context, max_bytes=given.max_size)
    check_bound(executor, given.scope, given.config)
    return executor


def _python(call: PythonCall, given: _Definition) -> Executor:
    assert given.signature is not None  # noqa: S101 - a definition without its function is not compiled
    return compile_python(call, given.signature, scope=given.scope.at("python"), threads=given.context.services.threads)


def _content(content: Sequence[Block], given: _Definition) -> Executor:
    assert isinstance(given.config, Tool)  # noqa: S101 - resources have no `content`
    scope = given.scope.at("content")
    watch_missing(content, problems=scope.problems, context=given.context)
    blocks = compile_blocks(content, scope=scope, reader=given.reader)
    return content_executor(blocks, is_error=given.config.is_error)


def _text(text: str, given: _Definition) -> Executor:
    template = compile_text(text, given.scope.at("text"))
    return fixed(
        lambda invocation: RawOutput(data=template.render(invocation.variables).encode(), media_type="text/plain"),
        Explanation(does="returns text fixed in the file"),
    )


def _blob(blob: str, given: _Definition) -> Executor:
    data = decoded_base64(blob, scope=given.scope.at("blob"))
    explanation = Explanation(does="returns bytes fixed in the file", facts={"bytes": len(data)})
    return fixed(lambda _: RawOutput(data=data, is_blob=True), explanation)


def file_of(file: str, *, problems: Problems) -> str:
    return os.path.normpath(problems.at("file").directory / file)


def _file(file: str, given: _Definition) -> Executor:
    assert isinstance(given.config, Resource)  # noqa: S101 - tools have no `file`
    problems = given.scope.problems.at("file")
    path = file_of(file, problems=given.scope.problems)
    given.context.dependencies.files.add(Path(path))
    if not is_file(path):
        problems.warning(f"file `{file}` does not exist")
    return SingleFile(path=path, uri=given.config.uri or "", reader=given.reader)


def fixed(render: Callable[[Invocation], RawOutput], explanation: Explanation) -> Executor:
    async def execute(invocation: Invocation) -> Outcome:
        return render(invocation)

    return FunctionExecutor(lambda _: explanation, execute)


def _upstream(relayed: RelayBackend, given: _Definition) -> Executor:
    # Mark all inputs as used, because the upstream receives all of them.
    given.scope.use_all()
    return relayed.executor


_TEXT_OUTPUT: Final = OutputTraits()


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    compile: Callable[[Any, _Definition], Executor]
    """Compiles the value of the backend's key."""
    output: OutputTraits = _TEXT_OUTPUT
    """Properties of the backend's results that determine which settings of `output` are valid."""
    timeout_bounds: Literal["call", "attempt"] = "call"
    """Whether `timeout` in the backend's mapping limits the whole call or each attempt."""
    sees_caller: bool = True
    """Whether the backend always knows the caller. If so, results are not shared between callers. Other backends know
    the caller only through `forward_headers` and templates that use `caller`.
    """
    cut: Literal["bytes", "rows"] | None = None
    """Unit in which the backend can limit a result early, if `output` truncates long results anyway."""
    is_of_operator: bool = False
    """Whether the result is text or a file written by the operator. Control characters in such results are kept."""


BACKENDS: Final[Mapping[str, Backend]] = {
    "shell": Backend(
        compile=_shell,
        output=OutputTraits(names=("exit_code", "stderr")),
        sees_caller=False,
        cut="bytes",
    ),
    "http": Backend(
        compile=_http,
        output=OutputTraits(names=("status", "headers"), has_media_type=True),
        timeout_bounds="attempt",
        sees_caller=False,
    ),
    "sql": Backend(compile=_sql, output=OutputTraits(is_table=True), sees_caller=False, cut="rows"),
    "python": Backend(compile=_python, output=OutputTraits(is_bytes=True)),
    "content": Backend(compile=_content, output=OutputTraits(is_fixed=True), is_of_operator=True),
    "text": Backend(compile=_text, sees_caller=False, is_of_operator=True),
    "blob": Backend(compile=_blob, sees_caller=False, is_of_operator=True),
    "file": Backend(compile=_file, sees_caller=False, is_of_operator=True),
    "upstream": Backend(compile=_upstream, output=OutputTraits(keeps_documents=True)),
}
"""Backends by the key in a definition. The keys are the fields of `Tool` and `Resource` that are marked `BACKEND`.
`files` has no entry, because `compile.resources` compiles it into many resources.
"""
