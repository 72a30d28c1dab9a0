"""The command `mcp-gateway`: finds the command that was typed, imports its module, runs it and returns its exit code.

In: the words of the command line. Out: text on standard output and error, and an exit code.

The commands stand in `commands`, with their table. What they share: `parser`, `options`, `positional` and `given_input`
for what is typed and given, `console` and `results` for what is read, `client`, and `dry_run`, which makes a file ready
without serving it.
"""

import os
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from io import TextIOWrapper

from gateway import __version__
from gateway.cli.command_table import COMMANDS, load, load_report
from gateway.cli.console import Console
from gateway.cli.parser import EXIT_CODES, Parser


def main(words: Sequence[str] | None = None, *, on_imported: Callable[[], None] = lambda: None) -> int:
    """Run the command line and return its exit code; `on_imported` is called before the chosen command runs."""
    words = sys.argv[1:] if words is None else words
    _prepare_streams()
    hints = Console(sys.stderr)
    try:
        try:  # within the other, for the report of an error may be interrupted, or find nobody who reads it
            return _run(words, Console(sys.stdout), hints, on_imported)
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001 - Boundary: a person sees one line and no traceback
            return load_report()(error, hints, words)
    except BrokenPipeError:  # `| head` has read enough
        # Python flushes standard output at its end, and would complain of the broken pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        # As a shell reports a process that SIGPIPE has ended: 128 + 13.
        return 141
    except KeyboardInterrupt:
        return 130


def _prepare_streams() -> None:
    """Open descriptors 0 to 2 if one is closed, so that no other file becomes one of them; let any text be written."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # open(2): the lowest descriptor that is free, which is this one
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Not every locale can encode `✓`: an escape is better than a UnicodeEncodeError.
            stream.reconfigure(errors="backslashreplace")


def _run(words: Sequence[str], out: Console, hints: Console, on_imported: Callable[[], None]) -> int:
    overview = _overview()
    if not words:
        overview.print_help()
        return 2
    name, *rest = words
    if name == "help":
        name, *rest = (rest[0], "--help") if rest else ("--help",)
    if name.startswith("-"):
        overview.parse_args([name])  # --help and --version end here, all else is an error
    if name not in COMMANDS:
        near = get_close_matches(name, COMMANDS, n=1)
        overview.error(f"there is no command {name!r}" + (f"; did you mean `{near[0]}`?" if near else ""))
    module, run = load(COMMANDS[name])
    on_imported()
    parser = module.parser(f"mcp-gateway {name}")
    # POSIX, Utility Syntax Guideline 10: `--` ends the options; argparse knows it only where these come first.
    options = parser.parse_args(rest) if "--" in rest else parser.parse_intermixed_args(rest)
    return run(module.run(options, out, hints))


def _overview() -> Parser:
    """The parser of the command line without a command: its help lists the commands; it knows `--version`."""
    width = max(map(len, COMMANDS))
    parser = Parser(
        "mcp-gateway",
        words="COMMAND",
        summary="One YAML file becomes an MCP server: shell, HTTP and Python tools, resources and prompts.",
        epilog="\n".join(
            [
                "commands:",
                *(f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()),
                "",
                "examples:",
                "  mcp-gateway init                     write a first config.yaml",
                "  mcp-gateway validate                 check it",
                "  mcp-gateway call hello name=Ada      try a tool, without a server",
                "  mcp-gateway serve                    http://127.0.0.1:8000/mcp",
                "",
                "`mcp-gateway COMMAND --help` tells more. Every setting has a variable: MCP_GATEWAY_…",
                "",
                EXIT_CODES,
            ]
        ),
    )
    parser.add_argument("--version", action="version", version=f"mcp-gateway {__version__}")
    return parser
