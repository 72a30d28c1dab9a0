"""The command `mcp-gateway`: words in, exit code out. What is done, others do."""

import asyncio
import os
import sys
import traceback
from argparse import Namespace
from collections.abc import Awaitable, Callable, Sequence
from difflib import get_close_matches
from io import TextIOWrapper
from typing import Final, NamedTuple

from gateway.cli import arguments
from gateway.cli.client_config import client_config
from gateway.cli.dev.dev import dev
from gateway.cli.file import print_schema, validate
from gateway.cli.lock import lock
from gateway.cli.parser import Parser
from gateway.cli.plan import show_plan
from gateway.cli.primitives import call, list_primitives, prompt, read
from gateway.cli.remote import RemoteError
from gateway.cli.scaffold import init
from gateway.cli.screen import Screen, say
from gateway.cli.serve import serve
from gateway.cli.status import status
from gateway.cli.testing import test
from gateway.config.diagnostics import render
from gateway.config.settings import variable_of
from gateway.errors import ConfigError, RpcError

if sys.platform == "win32":
    EVENT_LOOP: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
else:
    import uvloop

    EVENT_LOOP = uvloop.new_event_loop


class Command(NamedTuple):
    summary: str
    parser: Callable[[str], Parser]
    run: Callable[[Namespace, Screen, Screen], Awaitable[int]]


COMMANDS: Final = {
    "serve": Command("serve the file as an MCP server", arguments.serve_parser, serve),
    "dev": Command("serve the file, and show in the terminal what happens", arguments.dev_parser, dev),
    "validate": Command("check the file; every mistake at once", arguments.validate_parser, validate),
    "lock": Command("pin every definition, or check that they are as pinned", arguments.lock_parser, lock),
    "list": Command("list tools, resources, templates and prompts", arguments.list_parser, list_primitives),
    "call": Command("call a tool", arguments.call_parser, call),
    "read": Command("read a resource", arguments.read_parser, read),
    "prompt": Command("get a prompt", arguments.prompt_parser, prompt),
    "plan": Command("show what serving another file would change, and for whom", arguments.plan_parser, show_plan),
    "test": Command("run the tests under `tests:` of the tools", arguments.test_parser, test),
    "client-config": Command("print what to paste into a client", arguments.client_config_parser, client_config),
    "status": Command("show how a running server is doing", arguments.status_parser, status),
    "init": Command("write a first file", arguments.init_parser, init),
    "schema": Command("print the file's JSON Schema, for editors", arguments.schema_parser, print_schema),
}


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = sys.argv[1:] if words is None else words
    _prepare_streams()
    hints = Screen(sys.stderr)
    try:
        return _run(words, Screen(sys.stdout), hints)
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 - Boundary: a person sees one line, not our insides
        return _report(error, hints, with_traceback="debug" in (*words, os.environ.get(variable_of("log_level"))))


def _prepare_streams() -> None:
    """Let nothing else become descriptor 0, 1 or 2, should one be closed; and let any text be written."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free: this one
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _report(error: Exception, hints: Screen, *, with_traceback: bool) -> int:
    match error:
        case ConfigError():
            hints.line(render(error.problems, colour=hints.has_colour))
            return 2
        case RpcError():
            hints.line(hints.styled("error: ", "red") + error.message + (f" ({say(error.data)})" if error.data else ""))
        case RemoteError():
            hints.line(hints.styled("error: ", "red") + str(error))
        case _:
            if with_traceback:
                hints.line("".join(traceback.format_exception(error)))
            hints.line(f"{hints.styled('unexpected error:', 'red')} {type(error).__name__}: {error}")
            hints.line("This is a mistake in mcp-gateway itself; with `--log-level debug` it shows where.")
    return 1


def _run(words: Sequence[str], out: Screen, hints: Screen) -> int:
    overview = arguments.overview([(name, command.summary) for name, command in COMMANDS.items()])
    if not words:
        overview.print_help()
        return 2
    name, *rest = words
    if name == "help":
        asked = COMMANDS.get(next(iter(rest), ""))
        (overview if asked is None else asked.parser(f"mcp-gateway {rest[0]}")).print_help()
        return 0
    if name.startswith("-"):
        overview.parse_args([name])  # --help and --version end here, all else is an error
    if name not in COMMANDS:
        near = get_close_matches(name, COMMANDS, n=1)
        overview.error(f"there is no command {name!r}" + (f"; did you mean `{near[0]}`?" if near else ""))
    command = COMMANDS[name]
    options = command.parser(f"mcp-gateway {name}").parse_intermixed_args(rest)
    with asyncio.Runner(loop_factory=EVENT_LOOP) as runner:
        return runner.run(_run_command(command, options, out, hints))


async def _run_command(command: Command, options: Namespace, out: Screen, hints: Screen) -> int:
    return await command.run(options, out, hints)
