"""The entry point of `mcp-gateway`. Only the module of the selected command is imported."""

import os
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from io import TextIOWrapper
from types import ModuleType
from typing import Final

from gateway import __version__
from gateway.cli.console import Console
from gateway.cli.parser import EXIT_CODES, Parser

COMMANDS: Final = {
    "serve": "serve the file as an MCP server",
    "dev": "serve the file and show its activity in the terminal",
    "validate": "check the file and report all errors",
    "lock": "pin every definition, or check for changes",
    "list": "list tools, resources, templates and prompts",
    "call": "call a tool",
    "read": "read a resource",
    "prompt": "get a prompt",
    "plan": "show the changes that another file would make",
    "test": "run the tests under `tests:` of the tools",
    "client-config": "print configuration to paste into a client",
    "bundle": "pack the file into a bundle that desktop clients install",
    "publish-info": "write the server.json for an MCP registry",
    "status": "show the status of a running server",
    "connections": "list services that users sign in to",
    "tasks": "list, show or cancel the tasks of a running server",
    "import": "convert an OpenAPI document to tools in YAML",
    "init": "write a first configuration file",
    "schema": "print the file's JSON Schema, for editors",
    "completion": "print a shell completion script",
}
EXECUTION: Final = "gateway.cli.execution"
"""The module that runs a command. It is imported late, because importing asyncio, uvloop and pydantic is slow."""


def main(words: Sequence[str] | None = None, *, on_imported: Callable[[], None] = lambda: None) -> int:
    """Run a command line and return the exit code.

    `on_imported` is called after all imports, before the command runs.
    """
    words = sys.argv[1:] if words is None else words
    _prepare_streams()
    try:
        try:  # reporting an error can be interrupted too, or fail with a broken pipe
            return _run(words, on_imported)
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001 - Boundary: a person sees one line and no traceback
            code: int = load_execution().report(error, Console(sys.stderr), words)
            return code
    except BrokenPipeError:  # the reader has closed the pipe
        # Replace standard output, because Python flushes it at exit and would report the broken pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        # The exit code that shells report for SIGPIPE: 128 + 13.
        return 141
    except KeyboardInterrupt:
        return 130


def _prepare_streams() -> None:
    """Connect closed standard streams to /dev/null, so that no other file gets the descriptors 0 to 2."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # open(2) returns the lowest free number, which is `descriptor`
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Some locales cannot encode `✓`. Escape such characters instead of raising UnicodeEncodeError.
            stream.reconfigure(errors="backslashreplace")


def _run(words: Sequence[str], on_imported: Callable[[], None]) -> int:
    overview = _overview()
    if not words:
        overview.print_help()
        return 2
    name, *rest = words
    if name == "help":
        name, *rest = (rest[0], "--help") if rest else ("--help",)
    if name.startswith("-"):
        overview.parse_args([name])  # exits for --help, --version and errors
    if name not in COMMANDS:
        near = get_close_matches(name, COMMANDS, n=1)
        overview.error(f"unknown command {name!r}" + (f"; did you mean `{near[0]}`?" if near else ""))
    module, execute = load(name), load_execution().execute
    on_imported()
    parser = module.parser(f"mcp-gateway {name}")
    # POSIX Utility Syntax Guideline 10: `--` ends the options. `parse_intermixed_args` does not support `--`.
    options = parser.parse_args(rest) if "--" in rest else parser.parse_intermixed_args(rest)
    code: int = execute(module.run, options, Console(sys.stdout), Console(sys.stderr))
    return code


def _overview() -> Parser:
    width = max(map(len, COMMANDS))
    parser = Parser(
        "mcp-gateway",
        words="COMMAND",
        summary="One YAML file becomes an MCP server: shell, HTTP, SQL and Python tools, OpenAPI documents, upstream "
        "MCP servers, resources and prompts.",
        epilog="\n".join(
            [
                "commands:",
                *(f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items()),
                "",
                "examples:",
                "  mcp-gateway init                     write a first config.yaml",
                "  mcp-gateway validate                 check it",
                "  mcp-gateway call hello name=Ada      try a tool, without a server",
                "  mcp-gateway serve                    http://127.0.0.1:8000/mcp",
                "",
                "See `mcp-gateway COMMAND --help`. Every setting has an environment variable: MCP_GATEWAY_…",
                "",
                EXIT_CODES,
            ]
        ),
    )
    parser.add_argument("--version", action="version", version=f"mcp-gateway {__version__}")
    return parser


def load(name: str) -> ModuleType:
    module = "import_openapi" if name == "import" else name.replace("-", "_")
    return import_module(f"gateway.cli.commands.{module}")


def load_execution() -> ModuleType:
    return import_module(EXECUTION)
