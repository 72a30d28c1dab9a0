import os
import re
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from operator import methodcaller
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from gateway.app.listeners import check_view
from gateway.cli.client.remote import open_sender, view_url
from gateway.cli.console import Console, protect_stdout
from gateway.cli.dry_run import dry_run, variables_of
from gateway.cli.options import VIEW, add_log_level, add_option, one_shot_settings
from gateway.cli.parser import Parser
from gateway.cli.results import writing
from gateway.cli.user_input import input_line
from gateway.client_configs.clients import CLIENTS, LITERAL, Client, Definition, HttpServerEntry, StdioServer
from gateway.client_configs.file_change import FileChange, change_of
from gateway.client_configs.notation import NotEditableError
from gateway.config.definition_source import load_definitions
from gateway.config.reading.interpolation import Variable
from gateway.config.settings import flag_of
from gateway.errors import ConfigError, ExecutionError
from gateway.net.request import Request, bound, parse_url
from gateway.wire.accept import EVENT_STREAM

_NAME: Final = "mcp-gateway"
_WITH_LINKS: Final = [name for name, client in CLIENTS.items() if client.link is not None]
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        words="CLIENT [CONFIG | --url URL]",
        summary="Print the configuration to paste into a client.",
        epilog=f"""\
examples:
  {name} claude           the client starts `serve ./config.yaml --stdio`
  {name} cursor config.yaml --name ops
  {name} vscode --url https://tools.example.com/ops/mcp
  {name} claude config.yaml --view support
  {name} codex --write          change the client's file, after asking
  {name} cursor --link          print a link that installs the server
  {name} chatgpt --url https://tools.example.com/mcp    steps to follow

The path of the client's file is printed on standard error. `env` contains the variables that the
file reads. Keys and values are never printed: the client reads its environment or asks its user.""",
    )
    short = methodcaller("removesuffix", "-code")
    arguments.add_argument("client", metavar="CLIENT", type=short, choices=CLIENTS, help=", ".join(CLIENTS))
    arguments.add_argument("config_file", nargs="?", metavar="CONFIG", help="the file to serve")
    arguments.add_argument("--url", help="a running server instead of CONFIG; /mcp is added to a URL without a path")
    arguments.add_argument(
        "--name", help="name of the server in the client (default: `server.name`, or the URL's host)"
    )
    arguments.add_argument(
        "--key-from",
        metavar="VARIABLE",
        help="send the key in this variable (default: only if the server requires a key)",
    )
    add_form = arguments.add_alternatives()
    add_form("--write", action="store_true", help="change the client's file; shows the difference and asks first")
    add_form("--link", action="store_true", help=f"print a link that installs the server ({', '.join(_WITH_LINKS)})")
    arguments.add_argument("--yes", action="store_true", help="do not ask before `--write`")
    add_option(arguments.add_argument, VIEW)
    add_log_level(arguments.add_argument)
    return arguments


async def run(options: Namespace, out: Console, hints: Console) -> int:
    client = CLIENTS[options.client]
    if options.link and client.link is None:
        raise ConfigError.at("--link", f"{client.title} has no install links. Available for: {', '.join(_WITH_LINKS)}")
    server: StdioServer | HttpServerEntry
    if options.url is not None:
        if options.config_file is not None:
            raise ConfigError.at("--url", f"cannot be combined with {options.config_file}")
        server = await _http_server(options, client, hints)
    elif not client.file:
        raise ConfigError.at(
            options.client, f"{client.title} does not start servers. Use --url with the address of a running server"
        )
    elif options.key_from is not None:
        raise ConfigError.at(
            "--key-from", "requires --url. Without --url, the client starts the server itself and needs no key"
        )
    else:
        server = _stdio_server(options, client, hints)
    questions = client.questions(server)
    if options.write:
        if client.uses_steps(server):
            raise ConfigError.at("--write", f"{client.title} adds servers with a URL in its settings. Omit `--write`")
        return _write(options, client, _change(client, server.name, client.entry(server), questions), out, hints)
    if options.link and client.link is not None:
        out.line(client.link(server.name, client.entry(server), questions))
        return 0
    if not client.uses_steps(server):
        hints.line(hints.styled(f"For {client.title}: {client.place}", "dim"))
    out.line(client.text(server))
    return 0


def _change(client: Client, name: str, entry: Definition, questions: list[Definition]) -> FileChange:
    try:
        return change_of(client, name, entry, questions)
    except NotEditableError as error:
        raise ConfigError.at(
            client.file, f"was not changed: {error}. Omit `--write` to print the text to paste"
        ) from error
    except OSError as error:
        raise ConfigError.at(client.file, f"cannot be read: {error.strerror}") from error


def _write(options: Namespace, client: Client, change: FileChange, out: Console, hints: Console) -> int:
    if change.before == change.after:
        hints.line(f"{change.path} already contains this server.")
        return 0
    for line in change.difference:
        out.line(out.changed(line))
    if not options.yes and not _agrees(hints, f"Write {change.path}? [y/N] "):
        hints.line("Nothing was written.")
        return 1
    with writing(change.path):
        copy = change.write()
    hints.line(f"Wrote {change.path}" + ("" if copy is None else f"; the previous content is in {copy.name}"))
    hints.line(f"Restart {client.title} to apply the change.")
    return 0


def _agrees(hints: Console, question: str) -> bool:
    if not sys.stdin.isatty():
        raise ConfigError.at("--write", "needs a terminal to ask for confirmation. Use `--yes` to write without asking")
    hints.line(question)
    return input_line().strip().lower() in {"y", "yes"}


def _stdio_server(options: Namespace, client: Client, hints: Console) -> StdioServer:
    settings = one_shot_settings(options, options.config_file)
    with protect_stdout():
        loaded = load_definitions(settings.config)
        needed = (name for name, variable in loaded.variables.items() if variable.is_needed)
        # A variable that is not set in this process can be set by the client that starts the server.
        unset = [name for name in needed if name not in os.environ]
        if not unset:
            with dry_run(settings) as dry:
                loaded = dry.loaded
    check_view(settings.view, loaded.document.views)
    variables = variables_of(loaded)
    for hint in _variable_hints(variables, unset, client):
        hints.line(hint)
    command, *arguments = _own_command()
    # The path must be absolute, because clients start servers in another directory.
    config = str(settings.config.absolute())
    return StdioServer(
        name=options.name or _named(loaded.redactor.text(loaded.document.server.name), settings.view),
        command=command,
        arguments=[
            *arguments,
            "serve",
            config,
            "--stdio",
            *([flag_of("view"), settings.view] if settings.view else []),
        ],
        variables=variables,
    )


def _named(name: str, view: str | None) -> str:
    return name if view is None else f"{name}-{view}"


def _variable_hints(variables: Mapping[str, Variable], unset: Sequence[str], client: Client) -> Iterator[str]:
    if unset:
        yield f"The file was not checked, because these variables are not set: {', '.join(unset)}"
    if variables:
        yield f"The file contains no values for `env`: {client.source_of_variables}."
    optional = [name for name, variable in variables.items() if not variable.is_needed]
    if optional:
        yield f"These variables are optional. Remove those that you do not set: {', '.join(optional)}"


def _own_command() -> list[str]:
    # The path must be absolute, because desktop clients use another PATH and working directory.
    found = shutil.which(sys.argv[0])
    if found is not None and Path(found).name.startswith("mcp-gateway"):
        return [str(Path(found).absolute())]
    return [sys.executable, "-m", "gateway"]


async def _http_server(options: Namespace, client: Client, hints: Console) -> HttpServerEntry:
    view = getattr(options, "view", None)
    url = view_url(options.url, view)
    name = options.name or _named(urlsplit(url).hostname or _NAME, view)
    variable = options.key_from
    if variable is not None and _VARIABLE.fullmatch(variable) is None:  # not quoted, because it can be the key itself
        raise ConfigError.at(
            "--key-from", "expected the name of an environment variable that contains the key, such as OPS_API_KEY"
        )
    needs_key, hint = await _probe(url)
    if hint:
        hints.line(hint)
    if needs_key and variable is None:
        variable = _variable_for(name)
    server = HttpServerEntry(name=name, url=url, key_variable=variable)
    if variable is not None and not client.uses_steps(server):
        is_read = client.key != LITERAL
        source = f"The client reads the key from {variable}, or asks for it." if is_read else f"Replace <{variable}>."
        hints.line(f"{source} The file does not contain the key.")
    return server


async def _probe(url: str) -> tuple[bool, str]:
    """Return whether the MCP endpoint rejects a request without a key, and a hint for the user."""
    try:
        request = Request(method="GET", url=parse_url(url), headers=bound({"Accept": EVENT_STREAM}))
        async with open_sender() as sender, sender.exchange(request) as answer:
            challenge = answer.headers.get("WWW-Authenticate", "")
    except (ExecutionError, ValueError):
        return False, "The server does not respond. If the server requires a key, pass --key-from VARIABLE."
    match answer.status:
        case 401 if "resource_metadata" in challenge:  # RFC 9728 §5.1: the URL of the OAuth metadata
            return False, "The server uses OAuth: the client asks you to log in."
        case 401:
            return True, ""
        # The server requires no authentication. It can reject the GET request because the request has no session.
        case 200 | 400 | 405 | 406:
            return False, ""
        case _:
            path = urlsplit(url).path
            return False, f"The response of {path} is not from an MCP server, or the server rejects this machine."


def _variable_for(name: str) -> str:
    words = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").upper()
    # POSIX names cannot start with a digit.
    return f"{'MCP_' * (not words[:1].isalpha())}{words}_API_KEY"
