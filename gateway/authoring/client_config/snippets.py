"""The JSON that each client expects in its configuration: for a server that it starts, and for one behind a URL."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from gateway.config.reading.interpolation import Variable
from gateway.json_types import Json


class StdioServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server that the client starts and talks to over stdio."""

    name: str
    command: str
    arguments: list[str]
    variables: Mapping[str, Variable]
    """The variables that it reads."""


class HttpServer(msgspec.Struct, frozen=True, kw_only=True):
    """A running server that the client reaches by its URL."""

    name: str
    url: str
    key_variable: str | None
    """The variable of the client's environment with the API key; None if the server asks for none."""


class Client(NamedTuple):
    """The notation of one client, and the files in which it is written."""

    title: str
    source_of_variables: str
    """The source of the values of variables, as told to a person."""
    stdio: Callable[[StdioServer], Json]
    http: Callable[[HttpServer], Json]
    stdio_place: str
    http_place: str


def _with_headers(server: HttpServer, notation: str) -> dict[str, Json]:
    headers = {"Authorization": f"Bearer {notation}"}
    return {"url": server.url, **({} if server.key_variable is None else {"headers": headers})}


def _claude_http(server: HttpServer) -> Json:
    fields = _with_headers(server, f"${{{server.key_variable}}}")
    return {"mcpServers": {server.name: {"type": "http", **fields}}}


def _cursor_http(server: HttpServer) -> Json:
    return {"mcpServers": {server.name: _with_headers(server, f"${{env:{server.key_variable}}}")}}


def _vscode_http(server: HttpServer) -> Json:
    key = server.key_variable
    fields = _with_headers(server, _input(key))
    questions = [] if key is None else [_question(key, f"API key of {server.name}", is_secret=True)]
    return _vscode_file(server.name, {"type": "http", **fields}, questions)


def _claude_stdio(server: StdioServer) -> Json:
    """An optional variable that is not set becomes empty, which the server treats as not set."""
    notations = {
        name: f"${{{name}}}" if variable.is_needed else f"${{{name}:-}}" for name, variable in server.variables.items()
    }
    return {"mcpServers": {server.name: _with_environment(server, notations)}}


def _cursor_stdio(server: StdioServer) -> Json:
    return {"mcpServers": {server.name: _with_environment(server, {n: f"${{env:{n}}}" for n in server.variables})}}


def _vscode_stdio(server: StdioServer) -> Json:
    """VS Code asks for the needed variables, and takes the optional ones from its environment."""
    notations = {
        name: _input(name) if variable.is_needed else f"${{env:{name}}}" for name, variable in server.variables.items()
    }
    questions = [
        _question(name, f"{name} of {server.name}", is_secret=variable.is_secret)
        for name, variable in server.variables.items()
        if variable.is_needed
    ]
    return _vscode_file(server.name, {"type": "stdio", **_with_environment(server, notations)}, questions)


def _with_environment(server: StdioServer, notations: Mapping[str, str]) -> dict[str, Json]:
    environment = {"env": dict(notations)} if notations else {}
    return {"command": server.command, "args": server.arguments, **environment}


def _vscode_file(name: str, server: Json, questions: list[Json]) -> Json:
    return {**({"inputs": questions} if questions else {}), "servers": {name: server}}


def _input(variable: str | None) -> str:
    return f"${{input:{variable}}}"


def _question(variable: str, description: str, *, is_secret: bool) -> Json:
    return {"type": "promptString", "id": variable, "description": description, "password": is_secret}


CLIENTS: Final[Mapping[str, Client]] = {
    "claude": Client(
        title="Claude",
        source_of_variables="Claude Code takes it from its environment. Claude Desktop does not: write values there",
        stdio=_claude_stdio,
        http=_claude_http,
        stdio_place=".mcp.json of the project (Claude Code), or claude_desktop_config.json (Settings, Developer)",
        http_place=".mcp.json of the project (Claude Code)",
    ),
    "cursor": Client(
        title="Cursor",
        source_of_variables="Cursor takes it from its environment",
        stdio=_cursor_stdio,
        http=_cursor_http,
        stdio_place="~/.cursor/mcp.json, or .cursor/mcp.json of the project",
        http_place="~/.cursor/mcp.json, or .cursor/mcp.json of the project",
    ),
    "vscode": Client(
        title="VS Code",
        source_of_variables="VS Code asks for what is needed, and takes the rest from its environment",
        stdio=_vscode_stdio,
        http=_vscode_http,
        stdio_place=".vscode/mcp.json of the workspace, or the command `MCP: Open User Configuration`",
        http_place=".vscode/mcp.json of the workspace, or the command `MCP: Open User Configuration`",
    ),
}
