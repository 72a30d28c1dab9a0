"""Compiles the suggestions for prompt arguments and for variables of URI templates."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import structlog
from msgspec.structs import replace

from gateway.catalog.compile.backends import signature_of
from gateway.catalog.compile.context import MAX_SIZE, CompileContext
from gateway.catalog.compile.file_globs import compile_file_globs
from gateway.catalog.compile.sql import compile_sql
from gateway.catalog.primitives import Completer, Suggestions
from gateway.config.models.backends import Shell
from gateway.config.models.definitions import CommandCompletion
from gateway.control_characters import visible_path
from gateway.deadline import Deadline
from gateway.errors import ExecutionError, InsufficientScopeError
from gateway.executors.files.globs import GlobSource
from gateway.executors.invocation import Executor, Failure, Invocation, RawOutput
from gateway.executors.python.executor import compile_python
from gateway.executors.python.results import valid_text
from gateway.executors.shell.executor import compile_shell
from gateway.executors.shell.launcher import Launcher
from gateway.executors.sql.executor import SqlExecutor
from gateway.language.scope import Inputs, Scope
from gateway.language.templates.render_state import json_of
from gateway.threads import DaemonThreadPool, run_in_thread

_Source = Callable[[Invocation], Awaitable[Iterable[str]]]
"""Function that returns candidate values. The argument `value` is the text that the user has typed so far."""

log: Final = structlog.get_logger(__name__)

SECONDS: Final = 3.0
"""Time limit for one request, in seconds. The limit is short, because users wait for suggestions while they type."""
_TEXT: Final = {"type": "string"}
_MAX_FILES: Final = 10_000


def fitting(candidates: Iterable[str], value: str) -> tuple[str, ...]:
    """Return the candidates that start with `value`, then the candidates that only contain `value`, ignoring case."""
    wanted = value.casefold()
    beginning, holding = [], []
    for candidate in dict.fromkeys(candidates):
        folded = candidate.casefold()
        if folded.startswith(wanted):
            beginning.append(candidate)
        elif wanted in folded:
            holding.append(candidate)
    return (*beginning, *holding)


def compile_completer(
    config: list[str] | CommandCompletion,
    *,
    name: str,
    scope: Scope,
    context: CompileContext,
    launcher: Launcher | None = None,
) -> Completer | None:
    """Compile the suggestions for argument `name`. Return None after reporting an error.

    The source can use `value` (the text typed so far) and the other arguments, which are all optional. `launcher`
    contains the limits and the sandbox of a command.
    """
    if isinstance(config, list):
        return fixed_values(config)
    others = {key: schema for key, schema in scope.inputs.schemas.items() if key != name}
    others["value"] = _TEXT
    inputs = Inputs(schemas=others, always_given=frozenset({"value"}))
    scope = replace(scope, inputs=inputs, used=set())
    source = _compile_source(config, scope=scope, context=context, launcher=launcher)
    return None if source is None else _sourced_values(source)


def fixed_values(values: Sequence[str]) -> Completer:
    async def complete(value: str, _arguments: Mapping[str, str], _invocation: Invocation) -> Suggestions:
        return _suggestions(fitting(values, value))

    return complete


def _sourced_values(source: _Source) -> Completer:
    async def complete(value: str, arguments: Mapping[str, str], invocation: Invocation) -> Suggestions:
        now = asyncio.get_running_loop().time()
        asked = invocation.narrowed(
            arguments={**arguments, "value": value},
            deadline=Deadline(min(invocation.deadline.at, now + SECONDS), SECONDS),
        )
        try:
            return _suggestions(fitting(await source(asked), value))
        except (ExecutionError, InsufficientScopeError) as error:
            log.warning("completion source failed", error=str(error))
            return _suggestions(())

    return complete


def _suggestions(values: Sequence[str]) -> Suggestions:
    return Suggestions(values=values, total=len(values))


def _compile_source(
    config: CommandCompletion, *, scope: Scope, context: CompileContext, launcher: Launcher | None
) -> _Source | None:
    if config.command is not None:
        shell = Shell(command=config.command)
        command = compile_shell(
            shell, scope=scope, services=context.services, redactor=context.redactor, launcher=launcher
        )
        return partial(_printed, command)
    if config.python is not None:
        place = scope.at("python")
        signature = signature_of(config.python, problems=place.problems, context=context)
        if signature is None:
            return None
        threads = context.services.threads
        # The function may accept only some of the arguments.
        function = compile_python(config.python, signature, scope=place, threads=threads, every_input=False)
        return partial(function.call, convert=_texts)
    if config.sql is not None:
        query = compile_sql(config.sql, scope=scope.at("sql"), context=context, max_bytes=MAX_SIZE)
        return partial(_queried, query)
    globs = compile_file_globs([config.files or ""], root=None, problems=scope.problems, context=context)
    if globs is None:
        return None
    return partial(_listed, globs, context.services.worker_threads)


async def _queried(query: SqlExecutor, invocation: Invocation) -> Iterable[str]:
    rows = (await query.rows(invocation)).rows
    values = (next(iter(row.values()), None) for row in rows)
    return [value if isinstance(value, str) else json_of(value) for value in values if value is not None]


async def _listed(globs: GlobSource, threads: DaemonThreadPool, invocation: Invocation) -> Iterable[str]:
    look = partial(globs.listing, at_most=_MAX_FILES)
    listing = await run_in_thread(look, what="Listing the directory", call=invocation, threads=threads)
    # Skip names that are not UTF-8, because clients could not send them back.
    return (found.path for found in listing.files if visible_path(found.path) == found.path)


async def _printed(command: Executor, invocation: Invocation) -> Iterable[str]:
    match await command.execute(invocation):
        case RawOutput(data=data):
            return filter(None, data.decode("utf-8", "replace").splitlines())
        case Failure(text=text):
            raise ExecutionError(text)
        case _:
            return ()


def _texts(returned: object) -> Sequence[str]:
    if not isinstance(returned, list | tuple):
        raise ExecutionError("a completion function must return a list of strings")
    return [valid_text(str(value)) for value in returned]
