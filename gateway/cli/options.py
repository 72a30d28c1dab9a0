"""Options that several commands share, and functions that create `Settings` from parsed options."""

import os
import shlex
import shutil
import sys
from argparse import SUPPRESS, Namespace
from pathlib import Path
from typing import Final, NamedTuple

from gateway.cli.parser import AddArgument, Parser
from gateway.config.settings import NO_STATE, TOKEN_VARIABLE, Settings, flag_of, read_settings, variable_of

TOKEN_HINT: Final = f"Sends the token in ${TOKEN_VARIABLE}."
DAEMON_HINT: Final = f"""\
Without --url, the command asks the server of this file on this machine: at `listen.admin` if it
is set, otherwise at {variable_of("http")} or `listen.http`. {TOKEN_HINT}"""
_SHOWN_DEFAULTS: Final = {
    "http": "`listen.http`, 127.0.0.1:8000",
    "scopes": "all",
    "log_format": "console on a terminal",
    "poll": "30s",
    "drain_timeout": "10s",
    "view": "the whole catalog",
    "store": "none",
    "state_dir": "$STATE_DIRECTORY, or a directory for this file in ~/.local/state/mcp-gateway",
}
"""Descriptions of default values in `--help`, by the name of the setting."""


class Option(NamedTuple):
    """A flag that sets a field of `Settings`."""

    field: str
    metavar: str | None
    """The name of the value in the help, or None for a flag without a value."""
    help: str


HTTP: Final = Option("http", "HOST:PORT", "listen at http://HOST:PORT/mcp; port 0 selects a free port")
ALLOW_ANONYMOUS: Final = Option("allow_anonymous", None, "listen on addresses other than loopback without `auth`")
POLL: Final = Option("poll", "TIME", "interval to compare files, for file systems without events; 0 disables it")
VIEW: Final = Option("view", "NAME", "the view to use")
_LOG_LEVEL: Final = Option("log_level", "LEVEL", "debug, info, warning or error")


def add_option(add: AddArgument, option: Option, *, default: str | None = None) -> None:
    default = default or _SHOWN_DEFAULTS.get(option.field, Settings.model_fields[option.field].default)
    shown = "" if option.metavar is None else f"default: {default}; "
    text = f"{option.help} ({shown}{variable_of(option.field)})"
    takes = {"action": "store_true"} if option.metavar is None else {"metavar": option.metavar}
    # The flag has no argparse default, because a default would override the environment variable.
    add(flag_of(option.field), default=SUPPRESS, help=text, **takes)


def add_config(parser: Parser) -> None:
    parser.add_argument(
        "config",
        nargs="?",
        default=SUPPRESS,
        metavar="CONFIG",
        help=f"the file, or a directory of files (default: ${variable_of('config')}, then ./config.yaml)",
    )
    add_env_file(parser.add_argument)


def add_env_file(add: AddArgument) -> None:
    what = "a file of environment variables, one NAME=value per line; does not override variables that are already set"
    add("--env-file", type=Path, metavar="FILE", help=what)


def add_url(parser: Parser) -> None:
    """Add the options of a command that can use a running server instead of a file."""
    add = parser.add_group("server")
    add(
        "--url",
        help=f"a running server instead of CONFIG; /mcp is added to a URL without a path. {TOKEN_HINT.rstrip('.')}",
    )
    add_option(add, VIEW)
    add_env_file(add)
    add_log_level(add)


def add_log_level(add: AddArgument, *, default: str | None = "error") -> None:
    add_option(add, _LOG_LEVEL, default=default)


def add_request(parser: Parser, *, explains: str) -> None:
    """Add the flags that `call`, `read` and `prompt` share. `explains` is the output of `--explain`, for the help."""
    add = parser.add_argument
    add("--explain", action="store_true", help=f"show {explains}. Needs a file; JSON with --raw")
    claims = "a YAML or JSON file such as {sub: ann, groups: [ops]}"
    add("--as", dest="caller", metavar="FILE", help=f"run as the caller with these claims: {claims}")
    add("--raw", action="store_true", help="print the MCP result as JSON")
    what = "write the content, such as an image, to a file, or to standard output (-)"
    add("-o", "--output", type=Path, metavar="FILE", help=what)
    add_url(parser)


def add_lists_all(parser: Parser) -> None:
    what = "list each operation of OpenAPI documents that is not a tool, with the reason"
    parser.add_argument("-v", "--verbose", "--list", dest="lists_all", action="store_true", help=what)


def add_json(parser: Parser, shows: str) -> None:
    parser.add_argument("--json", action="store_true", help=f"print {shows}")


def typed_command() -> str:
    """Return the command that started this program, for command lines that the user can paste into the terminal."""
    found = shutil.which("mcp-gateway")
    program = Path(sys.argv[0])
    if program.name != "mcp-gateway" or not os.access(program, os.X_OK):
        return "mcp-gateway" if found else f"{shlex.quote(sys.executable)} -m gateway"
    return "mcp-gateway" if found and program.samefile(found) else shlex.quote(sys.argv[0])


def given_by(field: str, options: Namespace) -> str:
    """Return the flag of a setting if the user passed the flag, or else the setting's environment variable."""
    return flag_of(field) if field in options else variable_of(field)


def settings_of(options: Namespace, *, config: str | None = None) -> Settings:
    """Create settings from the parsed options that have the name of a `Settings` field."""
    flags = {field: value for field, value in vars(options).items() if field in Settings.model_fields}
    return read_settings(flags if config is None else {**flags, "config": config})


def one_shot_settings(options: Namespace, config: str | None) -> Settings:
    """Return settings for a short-lived command: no file watching, no stored state, and by default only error logs."""
    settings = settings_of(options, config=config)
    quiet = {} if "log_level" in settings.model_fields_set else {"log_level": "error"}
    stateless = {"state_dir": NO_STATE, "store": None, "store_file": None}
    # Ignore environment variables that are meant for a daemon.
    return settings.model_copy(update={"no_watch": True, "stdio": False, **stateless, **quiet})
