"""Runs a command on uvloop, and reports the error if the command fails."""

import asyncio
import errno
import os
import traceback
from argparse import Namespace
from collections.abc import Callable, Coroutine, Iterator, Sequence
from io import StringIO
from pathlib import Path

import uvloop

from gateway.cli.console import Console, say
from gateway.config.diagnostics.render import render
from gateway.config.settings import variable_of
from gateway.errors import ConfigError, ErrorCode, ExecutionError, Problem, RpcError
from gateway.json_types import Json

Command = Callable[[Namespace, Console, Console], Coroutine[Json, Json, int]]


def execute(command: Command, options: Namespace, out: Console, hints: Console) -> int:
    if env_file := getattr(options, "env_file", None):
        set_variables(env_file)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(command(options, out, hints))


def report(error: Exception, hints: Console, words: Sequence[str]) -> int:
    """Print an error and return the exit code. The command line (`words`) can request a traceback."""
    match error:
        case ConfigError():
            hints.line(render(error.problems, colour=hints.has_colour))
            return 2
        case RpcError():
            data = None if error.code == ErrorCode.MISSING_CLIENT_CAPABILITY else error.data
            _show(error.message + (f" ({say(data)})" if data else ""), hints)
        case ExecutionError():
            _show(str(error), hints)
        case OSError(errno=errno.ENOSPC | errno.EDQUOT | errno.EIO):  # for example a full disk behind standard output
            _show(f"cannot write: {error.strerror}", hints)
        case _:
            variable = variable_of("log_level")
            if "debug" in (*words, os.environ.get(variable)):
                hints.line("".join(traceback.format_exception(error)))
            hints.line(f"{hints.styled('unexpected error:', 'red')} {type(error).__name__}: {error}")
            hints.line(f"This is a bug in mcp-gateway. Set {variable}=debug to show the traceback.")
    return 1


def _show(text: str, hints: Console) -> None:
    hints.line(hints.styled("error: ", "red") + hints.clean(text))


def set_variables(path: Path) -> None:
    """Set the variables from an `--env-file` that are not set yet. References such as `$NAME` are not expanded.

    Errors do not quote malformed lines, because these lines can contain secrets.
    """
    try:
        # The path can be a pipe, because shells pass `<(command)` as a pipe.
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError.at("--env-file", f"cannot read {path}: {error.strerror}") from error
    except ValueError:
        # Use `from None`, because the UnicodeDecodeError contains the bytes of the file.
        raise ConfigError.at("--env-file", f"{path} is not UTF-8 text") from None
    variables: dict[str, str] = {}
    if problems := list(_read_variables(text, path, variables)):
        raise ConfigError(problems)
    for name, value in variables.items():
        os.environ.setdefault(name, value)


def _read_variables(text: str, path: Path, variables: dict[str, str]) -> Iterator[Problem]:
    from dotenv.parser import parse_stream  # noqa: PLC0415 - imports several packages

    for binding in parse_stream(StringIO(text)):
        if binding.key is None and not binding.error:  # an empty line
            continue
        if binding.value is None or not binding.key or "=" in binding.key or "\0" in binding.key + binding.value:
            original = binding.original.string
            # A binding includes the empty lines before it.
            empty_lines = original[: len(original) - len(original.lstrip())].count("\n")
            yield Problem(message="expected NAME=value", path=f"{path}:{binding.original.line + empty_lines}")
        else:
            variables[binding.key] = binding.value  # as in shells, the last assignment wins
