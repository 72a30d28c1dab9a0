"""The clients: what each expects in its configuration, for a server that it starts and for one behind a URL."""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from gateway.clients.notations.json_notation import JsonNotation
from gateway.clients.notations.notation import Notation
from gateway.clients.notations.toml_notation import TomlNotation
from gateway.clients.notations.yaml_notation import YamlNotation
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


Definition = dict[str, Json]
"""What a client writes of one server."""


class Client(NamedTuple):
    """The notation of one client, and the files in which it is written."""

    title: str
    source_of_variables: str
    """The source of the values of variables, as told to a person."""
    stdio: Callable[[StdioServer], Definition]
    http: Callable[[HttpServer], Definition]
    section: str
    """The key of the file under which its servers stand."""
    place: str
    """Where the file is, as told to a person."""
    file: str
    """The file that `--write` changes: of this directory, or of the user."""
    notation: Notation = JsonNotation()
    questions: Callable[[StdioServer | HttpServer], list[Definition]] = lambda _: []
    """What the client is to ask its user for, under `inputs`."""
    link: Callable[[str, Definition, list[Definition]], str] | None = None
    """The link that installs a server, made of its name, entry and questions."""


def _claude_http(server: HttpServer) -> Definition:
    return {"type": "http", **_with_headers(server, f"${{{server.key_variable}}}")}


def _cursor_http(server: HttpServer) -> Definition:
    return _with_headers(server, f"${{env:{server.key_variable}}}")


def _vscode_http(server: HttpServer) -> Definition:
    return {"type": "http", **_with_headers(server, _input(server.key_variable))}


def _codex_http(server: HttpServer) -> Definition:
    return {"url": server.url, **({"bearer_token_env_var": server.key_variable} if server.key_variable else {})}


def _gemini_http(server: HttpServer) -> Definition:
    fields = _with_headers(server, f"${{{server.key_variable}}}")
    return {"httpUrl": fields.pop("url"), **fields}


def _zed_http(server: HttpServer) -> Definition:
    return _with_headers(server, f"<{server.key_variable}>")


def _windsurf_http(server: HttpServer) -> Definition:
    fields = _cursor_http(server)
    return {"serverUrl": fields.pop("url"), **fields}


def _goose_http(server: HttpServer) -> Definition:
    fields = _with_headers(server, f"${{{server.key_variable}}}")
    return {
        **_goose(server.name, "streamable_http"),
        "uri": fields.pop("url"),
        **fields,
        **({"env_keys": [server.key_variable]} if server.key_variable else {}),
    }


def _with_headers(server: HttpServer, notation: str) -> Definition:
    headers = {"Authorization": f"Bearer {notation}"}
    return {"url": server.url, **({} if server.key_variable is None else {"headers": headers})}


def _claude_stdio(server: StdioServer) -> Definition:
    """An optional variable that is not set becomes empty, which the server treats as not set."""
    notations = {
        name: f"${{{name}}}" if variable.is_needed else f"${{{name}:-}}" for name, variable in server.variables.items()
    }
    return _with_environment(server, notations)


def _cursor_stdio(server: StdioServer) -> Definition:
    return _with_environment(server, {name: f"${{env:{name}}}" for name in server.variables})


def _vscode_stdio(server: StdioServer) -> Definition:
    """VS Code asks for the needed variables, and takes the optional ones from its environment."""
    notations = {
        name: _input(name) if variable.is_needed else f"${{env:{name}}}" for name, variable in server.variables.items()
    }
    return {"type": "stdio", **_with_environment(server, notations)}


def _codex_stdio(server: StdioServer) -> Definition:
    """Codex passes on the variables that are named, where they are set."""
    return {**_with_environment(server, {}), **({"env_vars": list(server.variables)} if server.variables else {})}


def _gemini_stdio(server: StdioServer) -> Definition:
    return _with_environment(server, {name: f"${{{name}}}" for name in server.variables})


def _zed_stdio(server: StdioServer) -> Definition:
    """Zed passes on its whole environment."""
    return _with_environment(server, {})


def _goose_stdio(server: StdioServer) -> Definition:
    return {
        **_goose(server.name, "stdio"),
        "cmd": server.command,
        "args": server.arguments,
        **({"env_keys": list(server.variables)} if server.variables else {}),
    }


def _goose(name: str, kind: str) -> Definition:
    return {"name": name, "type": kind, "enabled": True, "timeout": 300}


def _with_environment(server: StdioServer, notations: Mapping[str, str]) -> Definition:
    environment = {"env": dict(notations)} if notations else {}
    return {"command": server.command, "args": server.arguments, **environment}


def _input(variable: str | None) -> str:
    return f"${{input:{variable}}}"


def _vscode_questions(server: StdioServer | HttpServer) -> list[Definition]:
    if isinstance(server, StdioServer):
        return [
            _question(name, f"{name} of {server.name}", is_secret=variable.is_secret)
            for name, variable in server.variables.items()
            if variable.is_needed
        ]
    key = server.key_variable
    return [] if key is None else [_question(key, f"API key of {server.name}", is_secret=True)]


def _question(variable: str, description: str, *, is_secret: bool) -> Definition:
    return {"type": "promptString", "id": variable, "description": description, "password": is_secret}


def _cursor_link(name: str, entry: Definition, _: list[Definition]) -> str:
    # https://cursor.com/docs/mcp/install-links
    config = base64.b64encode(json.dumps(entry).encode()).decode()
    return "cursor://anysphere.cursor-deeplink/mcp/install?" + urlencode({"name": name, "config": config})


def _vscode_link(name: str, entry: Definition, questions: list[Definition]) -> str:
    # https://code.visualstudio.com/api/extension-guides/ai/mcp, "Create an MCP installation URL"
    config = {"name": name, **entry, **({"inputs": questions} if questions else {})}
    return "vscode:mcp/install?" + quote(json.dumps(config), safe="")


CLIENTS: Final[Mapping[str, Client]] = {
    "claude": Client(
        title="Claude",
        source_of_variables="Claude Code takes it from its environment. Claude Desktop does not: write values there",
        stdio=_claude_stdio,
        http=_claude_http,
        section="mcpServers",
        place=".mcp.json of the project (Claude Code), or claude_desktop_config.json (Settings, Developer; "
        "only servers that it starts)",
        file=".mcp.json",
    ),
    "codex": Client(
        title="Codex",
        source_of_variables="Codex takes it from its environment",
        stdio=_codex_stdio,
        http=_codex_http,
        section="mcp_servers",
        place="~/.codex/config.toml, or .codex/config.toml of a trusted project",
        file="~/.codex/config.toml",
        notation=TomlNotation(),
    ),
    "cursor": Client(
        title="Cursor",
        source_of_variables="Cursor takes it from its environment",
        stdio=_cursor_stdio,
        http=_cursor_http,
        section="mcpServers",
        place="~/.cursor/mcp.json, or .cursor/mcp.json of the project",
        file="~/.cursor/mcp.json",
        link=_cursor_link,
    ),
    "gemini": Client(
        title="Gemini CLI",
        source_of_variables="Gemini CLI takes it from its environment",
        stdio=_gemini_stdio,
        http=_gemini_http,
        section="mcpServers",
        place="~/.gemini/settings.json, or .gemini/settings.json of the project",
        file="~/.gemini/settings.json",
    ),
    "goose": Client(
        title="goose",
        source_of_variables="goose takes it from its environment, or from its secrets",
        stdio=_goose_stdio,
        http=_goose_http,
        section="extensions",
        place="~/.config/goose/config.yaml",
        file="~/.config/goose/config.yaml",
        notation=YamlNotation(),
    ),
    "vscode": Client(
        title="VS Code",
        source_of_variables="VS Code asks for what is needed, and takes the rest from its environment",
        stdio=_vscode_stdio,
        http=_vscode_http,
        section="servers",
        place=".vscode/mcp.json of the workspace, or the command `MCP: Open User Configuration`",
        file=".vscode/mcp.json",
        questions=_vscode_questions,
        link=_vscode_link,
    ),
    "windsurf": Client(
        title="Windsurf",
        source_of_variables="Windsurf takes it from its environment",
        stdio=_cursor_stdio,
        http=_windsurf_http,
        section="mcpServers",
        place="~/.codeium/windsurf/mcp_config.json",
        file="~/.codeium/windsurf/mcp_config.json",
    ),
    "zed": Client(
        title="Zed",
        source_of_variables="Zed passes its environment on to servers that it starts. In headers it knows no "
        "variables: write the key in place of what stands in <>",
        stdio=_zed_stdio,
        http=_zed_http,
        section="context_servers",
        place="~/.config/zed/settings.json, or .zed/settings.json of the project",
        file="~/.config/zed/settings.json",
    ),
}
