"""The argument parser of all commands, and the help texts that commands share.

This module imports only small modules, so that `--help` and `--version` are fast.
"""

import argparse
import sys
from collections.abc import Callable
from typing import Final, NoReturn, TextIO

from gateway.cli.console import Console
from gateway.json_types import Json

AddArgument = Callable[..., argparse.Action]
"""The method `add_argument` of a parser or argument group."""

EXIT_CODES: Final = """\
exit codes:
  0    success; `serve`: stopped by a signal
  1    failure: a tool error, an unknown resource, no server at the URL;
       `validate --strict`: warnings
  2    invalid file, flag or variable
  130  interrupted, or 143 by SIGTERM; `serve`: by the second signal"""

CONFIG_AS_FIRST_WORD: Final = """\
CONFIG defaults to $MCP_GATEWAY_CONFIG, then ./config.yaml. The first argument is CONFIG
if it ends in .yaml or .yml, contains a slash, or is a directory."""


class Parser(argparse.ArgumentParser):
    """An argument parser with one-line errors."""

    def __init__(self, name: str, *, summary: str, epilog: str = "", words: str | None = None) -> None:
        self.arguments: Final[list[argparse.Action]] = []
        super().__init__(
            prog=name,
            usage=None if words is None else f"{name} {words} [options]",
            description=summary,
            epilog=epilog,
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=30, width=88),
            # Abbreviations would break scripts when a new flag is added.
            allow_abbrev=False,
        )
        self.color = False  # Python 3.14 would use styles that `Console` removes

    def add_argument(self, *names: str, **settings: Json) -> argparse.Action:
        return self._recorded(super().add_argument)(*names, **settings)

    def add_group(self, title: str) -> AddArgument:
        """Add a group with a heading in the help, and return the group's `add_argument` method."""
        return self._recorded(self.add_argument_group(title).add_argument)

    def add_alternatives(self) -> AddArgument:
        return self._recorded(self.add_mutually_exclusive_group().add_argument)

    def _recorded(self, add: AddArgument) -> AddArgument:
        def add_recorded(*names: str, **settings: Json) -> argparse.Action:
            self.arguments.append(argument := add(*names, **settings))
            return argument

        return add_recorded

    def print_help(self, file: TextIO | None = None) -> None:  # type: ignore[override]  # narrower than SupportsWrite
        # The method of the base class ignores a full disk.
        Console(file or sys.stdout).line(self.format_help())

    def error(self, message: str) -> NoReturn:
        console = Console(sys.stderr)
        console.line(f"{console.styled('error:', 'red')} {message}")
        console.line(f"Try `{self.prog} --help`.")
        sys.exit(2)
