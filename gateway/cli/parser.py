"""What the parsers of all commands share: how help and errors look, and the options that several of them take."""

import argparse
import re
import sys
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, TextIO

from gateway.cli.screen import Screen
from gateway.config.settings import Settings, flag_of, variable_of

SHOWN_DEFAULTS: Final = {
    "http": "as the file says, 127.0.0.1:8000",
    "scopes": "all",
    "log_format": "console on a terminal",
    "poll": "30s",
    "drain_timeout": "10s",
}


class Parser(argparse.ArgumentParser):
    """Help in colour on a terminal, errors in one line."""

    def __init__(self, name: str, *, summary: str, epilog: str = "", words: str | None = None) -> None:
        super().__init__(
            prog=name,
            usage=None if words is None else f"{name} {words} [options]",
            description=summary,
            epilog=epilog,
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=30, width=88),
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
        )
        self.color = False  # Python 3.14 has colours of its own; ours work everywhere

    def print_help(self, file: TextIO | None = None) -> None:  # type: ignore[override]  # narrower than SupportsWrite
        screen = Screen(file or sys.stdout)
        screen.line(_coloured(self.format_help(), screen))

    def error(self, message: str) -> NoReturn:
        screen = Screen(sys.stderr)
        screen.line(f"{screen.styled('error:', 'red')} {message}")
        screen.line(f"Try `{self.prog} --help`.")
        sys.exit(2)


def _coloured(text: str, screen: Screen) -> str:
    text = re.sub(r"^(usage:|[a-z][\w ]*:)", lambda match: screen.styled(match[0], "bold"), text, flags=re.MULTILINE)
    text = re.sub(r"(?<![\w-])--?[a-z][a-z-]*", lambda match: screen.styled(match[0], "cyan"), text)
    return re.sub(r"\$?MCP_GATEWAY_\w+", lambda match: screen.styled(match[0], "dim"), text)


class Option(NamedTuple):
    """A flag that is a setting."""

    field: str
    metavar: str | None
    help: str


def add_config(parser: Parser) -> None:
    parser.add_argument(
        "config",
        nargs="?",
        metavar="CONFIG",
        help=f"the file, or a directory of files (default: ${variable_of('config')}, then ./config.yaml)",
    )


def add_option(group: argparse._ActionsContainer, option: Option, *, default: str | None = None) -> None:
    default = default or SHOWN_DEFAULTS.get(option.field, Settings.model_fields[option.field].default)
    shown = "" if option.metavar is None else f"default: {default}; "
    text = f"{option.help} ({shown}{variable_of(option.field)})"
    if option.metavar is None:
        group.add_argument(flag_of(option.field), action="store_true", help=text)
    else:
        group.add_argument(flag_of(option.field), metavar=option.metavar, help=text)


def add_peer(parser: Parser) -> None:
    group = parser.add_argument_group("where to ask")
    group.add_argument(
        "--url",
        default=None,
        help="a running server, in place of CONFIG; without a path, /mcp is meant. $MCP_GATEWAY_TOKEN is shown to it",
    )
    add_log_level(group)


def add_log_level(group: argparse._ActionsContainer) -> None:
    add_option(group, Option("log_level", "LEVEL", "debug, info, warning or error"), default="error")


def add_explain(parser: Parser, shows: str) -> None:
    parser.add_argument(
        "--explain", action="store_true", default=False, help=f"show {shows}. Of a file alone; JSON with --raw"
    )


def add_result(parser: Parser) -> None:
    parser.add_argument("--raw", action="store_true", default=False, help="print the protocol's result, as JSON")
    parser.add_argument(
        "-o", "--output", type=Path, default=None, metavar="FILE", help="write the content to a file, as images need it"
    )
