"""Where the values for a prompt's argument, or for a variable of a URI template, come from."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

import structlog

from gateway.catalog.backends import signature_of
from gateway.catalog.definitions import displayed
from gateway.catalog.primitives import Completer
from gateway.catalog.workbench import Workbench
from gateway.config.backends import Shell
from gateway.config.primitives import CommandCompletion
from gateway.errors import ExecutionError
from gateway.executors.clock import Clock
from gateway.executors.files.executor import compile_file_globs
from gateway.executors.files.globs import Globs
from gateway.executors.invocation import Executor, Failure, Invocation, RawOutput
from gateway.executors.python.executor import PythonExecutor, compile_python
from gateway.executors.python.results import valid_text
from gateway.executors.scope import Inputs, Scope
from gateway.executors.shell.executor import compile_shell
from gateway.executors.shell.launcher import Launcher
from gateway.executors.threads import Threads

log: Final = structlog.get_logger(__name__)

SECONDS: Final = 3.0
"""How long a source may take: somebody is typing."""
_TEXT: Final = {"type": "string"}
_MOST_FILES: Final = 10_000


def fitting(candidates: Iterable[str], value: str) -> tuple[str, ...]:
    """Those that begin with `value`, then those that hold it elsewhere; upper and lower case alike, order kept."""
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
    bench: Workbench,
    launcher: Launcher | None = None,
) -> Completer | None:
    """Make the source for argument `name` ready; None where it was written wrongly, which is then reported.

    A source may name the other arguments, none of which need have been given yet, and `value`: what was typed so far.
    `launcher` has the limits and the sandbox of a command.
    """
    if isinstance(config, list):
        return FixedValues(tuple(config))
    others = {key: schema for key, schema in scope.inputs.schemas.items() if key != name}
    others["value"] = _TEXT
    inputs = Inputs(schemas=others, always_given=frozenset({"value"}))
    scope = Scope(inputs=inputs, problems=scope.problems)
    source = _compile_source(config, scope=scope, bench=bench, launcher=launcher)
    return None if source is None else _SourcedValues(source)


@dataclass(frozen=True, slots=True)
class FixedValues:
    """A list in the file, or what was found when the file was read."""

    values: tuple[str, ...]

    async def complete(self, value: str, _arguments: Mapping[str, str], _invocation: Invocation) -> Sequence[str]:
        return fitting(self.values, value)


class _Source(Protocol):
    async def candidates(self, invocation: Invocation) -> Iterable[str]:
        """Every value there may be; `invocation` has the arguments and `value`."""


@dataclass(frozen=True, slots=True)
class _SourcedValues:
    """Asks its source each time. A source that fails has no values: a suggestion is not worth an error."""

    source: _Source

    async def complete(self, value: str, arguments: Mapping[str, str], invocation: Invocation) -> Sequence[str]:
        now = asyncio.get_running_loop().time()
        asked = replace(
            invocation,
            arguments={**arguments, "value": value},
            clock=Clock(min(invocation.deadline, now + SECONDS)),
        )
        try:
            return fitting(await self.source.candidates(asked), value)
        except ExecutionError as error:
            log.warning("completion source failed", error=str(error))
            return ()


def _compile_source(
    config: CommandCompletion, *, scope: Scope, bench: Workbench, launcher: Launcher | None
) -> _Source | None:
    if config.command is not None:
        shell = Shell(command=config.command)
        return _Printed(
            compile_shell(shell, scope=scope, services=bench.services, redactor=bench.redactor, launcher=launcher)
        )
    if config.python is not None:
        place = scope.at("python")
        signature = signature_of(config.python, problems=place.problems, bench=bench)
        if signature is None:
            return None
        threads = bench.services.threads
        return _Returned(compile_python(config.python, signature, scope=place, threads=threads, every_input=False))
    globs = compile_file_globs([config.files or ""], root=None, problems=scope.problems)
    return None if globs is None else _Listed(globs, bench.services.threads)


@dataclass(frozen=True, slots=True)
class _Listed:
    globs: Globs
    threads: Threads

    async def candidates(self, invocation: Invocation) -> Iterable[str]:
        look = partial(self.globs.listing, at_most=_MOST_FILES)
        try:
            listing = await self.threads.run(look, deadline=invocation.deadline, on_stuck=invocation.slot.hold_until)
        except TimeoutError as error:
            raise ExecutionError("the directory could not be listed in time") from error
        return (displayed(found.path) for found in listing.files)


@dataclass(frozen=True, slots=True)
class _Printed:
    """A command that prints a value on each line."""

    command: Executor

    async def candidates(self, invocation: Invocation) -> Iterable[str]:
        match await self.command.execute(invocation):
            case RawOutput(data=data):
                return filter(None, data.decode("utf-8", "replace").splitlines())
            case Failure(text=text):
                raise ExecutionError(text)
            case _:
                return ()


@dataclass(frozen=True, slots=True)
class _Returned:
    """A function that returns a list of values."""

    function: PythonExecutor

    async def candidates(self, invocation: Invocation) -> Iterable[str]:
        return await self.function.call(invocation, convert=_texts)


def _texts(returned: object) -> Sequence[str]:
    if not isinstance(returned, list | tuple):
        raise ExecutionError("a function that completes returns a list of texts")
    return [valid_text(str(value)) for value in returned]
