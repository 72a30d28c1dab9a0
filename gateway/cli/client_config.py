"""The command `client-config`: what to paste into a client, and where, so that it finds this server."""

import json
import re
import shutil
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from gateway.app import Prerequisites, prerequisites_of
from gateway.cli.own_output import own_output
from gateway.cli.remote import Wanted, endpoint, wanted_by
from gateway.cli.screen import Screen
from gateway.cli.settings import one_shot_settings
from gateway.cli.words import refusal
from gateway.config.reading.interpolation import Variable
from gateway.json_types import Json

_NAME: Final = "mcp-gateway"
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A server that the client starts, and talks to over standard input and output."""

    name: str
    command: str
    arguments: list[str]
    variables: Mapping[str, Variable]
    """What it reads of its environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A server that runs, and that the client reaches by its URL."""

    name: str
    url: str
    key_variable: str | None
    """The variable of the client's environment that holds the key which the server wants to see."""


class Client(NamedTuple):
    title: str
    source_of_variables: str
    """Where it takes the values from that its notation stands for."""
    started: Callable[[Started], Json]
    reached: Callable[[Reached], Json]
    place_of_started: str
    place_of_reached: str


async def client_config(options: Namespace, out: Screen, hints: Screen) -> int:
    client = CLIENTS[options.client]
    if options.url is not None:
        if options.config_file is not None:
            raise refusal("--url", f"and {options.config_file} are given; a client has one of them")
        server = await _reached(options, hints)
        snippet, place = client.reached(server), client.place_of_reached
    elif options.key_from is not None:
        raise refusal("--key-from", "goes with --url; a server that the client starts asks for no key")
    else:
        snippet, place = client.started(_started(options, client, hints)), client.place_of_started
    hints.line(hints.styled(f"For {client.title}: {place}", "dim"))
    out.line(json.dumps(snippet, indent=2, ensure_ascii=False))
    return 0


def _started(options: Namespace, client: Client, hints: Screen) -> Started:
    settings = one_shot_settings(options, options.config_file)
    with own_output():
        prerequisites = prerequisites_of(settings)
    for hint in _about_variables(prerequisites, client):
        hints.line(hint)
    command, *arguments = _ourselves()
    config = str(settings.config.absolute())
    return Started(
        name=options.name or prerequisites.name,
        command=command,
        arguments=[*arguments, "serve", config, "--stdio"],
        variables=prerequisites.variables,
    )


def _about_variables(prerequisites: Prerequisites, client: Client) -> Iterator[str]:
    if prerequisites.unset:
        yield f"Not set here, so that the file could not be checked: {', '.join(prerequisites.unset)}"
    if prerequisites.variables:
        yield f"What `env` names is not written into the file: {client.source_of_variables}."
    optional = [name for name, variable in prerequisites.variables.items() if not variable.is_needed]
    if optional:
        yield f"The server starts without these, too; leave out what you do not set: {', '.join(optional)}"


def _ourselves() -> list[str]:
    """How this program is started, whatever the client's PATH and directory are."""
    found = shutil.which(sys.argv[0])
    if found is not None and Path(found).name.startswith("mcp-gateway"):
        return [str(Path(found).absolute())]
    return [sys.executable, "-m", "gateway"]


async def _reached(options: Namespace, hints: Screen) -> Reached:
    url = endpoint(options.url, path="/mcp")
    name = options.name or urlsplit(url).hostname or _NAME
    variable = options.key_from
    if variable is not None and _VARIABLE.fullmatch(variable) is None:  # not quoted: it may be the key
        raise refusal("--key-from", "expected the name of a variable that holds the key, such as OPS_API_KEY")
    match await wanted_by(url):
        case Wanted.KEY if variable is None:
            variable = _variable_for(name)
        case Wanted.LOGIN:
            hints.line("The server takes OAuth: the client asks you to log in.")
        case Wanted.SOMETHING_ELSE:
            hints.line(f"What answers there now is no MCP server at {urlsplit(url).path}, or not for this machine.")
        case Wanted.UNKNOWN:
            hints.line(
                "Nobody answers there now, so whether the server wants a key is not known (--key-from VARIABLE)."
            )
        case _:
            pass
    if variable is not None:
        hints.line(f"The client takes the key from {variable}, or asks for it; it is not written into the file.")
    return Reached(name=name, url=url, key_variable=variable)


def _variable_for(name: str) -> str:
    """The name of an environment variable, which has no digit first."""
    words = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").upper()
    return f"{'MCP_' * (not words[:1].isalpha())}{words}_API_KEY"


def _with_headers(server: Reached, notation: str) -> dict[str, Json]:
    headers = {"Authorization": f"Bearer {notation}"}
    return {"url": server.url, **({} if server.key_variable is None else {"headers": headers})}


def _claude_http(server: Reached) -> Json:
    fields = _with_headers(server, f"${{{server.key_variable}}}")
    return {"mcpServers": {server.name: {"type": "http", **fields}}}


def _cursor_http(server: Reached) -> Json:
    return {"mcpServers": {server.name: _with_headers(server, f"${{env:{server.key_variable}}}")}}


def _vscode_http(server: Reached) -> Json:
    key = server.key_variable
    fields = _with_headers(server, _input(key))
    questions = [] if key is None else [_question(key, f"API key of {server.name}", is_secret=True)]
    return _of_vscode(server.name, {"type": "http", **fields}, questions)


def _claude_stdio(server: Started) -> Json:
    """An empty value, as one that is not set gets here, is as good as none to the server."""
    notations = {
        name: f"${{{name}}}" if variable.is_needed else f"${{{name}:-}}" for name, variable in server.variables.items()
    }
    return {"mcpServers": {server.name: _with_environment(server, notations)}}


def _cursor_stdio(server: Started) -> Json:
    return {"mcpServers": {server.name: _with_environment(server, {n: f"${{env:{n}}}" for n in server.variables})}}


def _vscode_stdio(server: Started) -> Json:
    """Nobody is asked for what the server can do without."""
    notations = {
        name: _input(name) if variable.is_needed else f"${{env:{name}}}" for name, variable in server.variables.items()
    }
    questions = [
        _question(name, f"{name} of {server.name}", is_secret=variable.is_secret)
        for name, variable in server.variables.items()
        if variable.is_needed
    ]
    return _of_vscode(server.name, {"type": "stdio", **_with_environment(server, notations)}, questions)


def _with_environment(server: Started, notations: Mapping[str, str]) -> dict[str, Json]:
    environment = {"env": dict(notations)} if notations else {}
    return {"command": server.command, "args": server.arguments, **environment}


def _of_vscode(name: str, server: Json, questions: list[Json]) -> Json:
    return {**({"inputs": questions} if questions else {}), "servers": {name: server}}


def _input(variable: str | None) -> str:
    return f"${{input:{variable}}}"


def _question(variable: str, description: str, *, is_secret: bool) -> Json:
    return {"type": "promptString", "id": variable, "description": description, "password": is_secret}


CLIENTS: Final[Mapping[str, Client]] = {
    "claude": Client(
        title="Claude",
        source_of_variables="Claude Code takes it from its environment. Claude Desktop does not: write values there",
        started=_claude_stdio,
        reached=_claude_http,
        place_of_started=".mcp.json of the project (Claude Code), or claude_desktop_config.json (Settings, Developer)",
        place_of_reached=".mcp.json of the project (Claude Code)",
    ),
    "cursor": Client(
        title="Cursor",
        source_of_variables="Cursor takes it from its environment",
        started=_cursor_stdio,
        reached=_cursor_http,
        place_of_started="~/.cursor/mcp.json, or .cursor/mcp.json of the project",
        place_of_reached="~/.cursor/mcp.json, or .cursor/mcp.json of the project",
    ),
    "vscode": Client(
        title="VS Code",
        source_of_variables="VS Code asks for what is needed, and takes the rest from its environment",
        started=_vscode_stdio,
        reached=_vscode_http,
        place_of_started=".vscode/mcp.json of the workspace, or the command `MCP: Open User Configuration`",
        place_of_reached=".vscode/mcp.json of the workspace, or the command `MCP: Open User Configuration`",
    ),
}
