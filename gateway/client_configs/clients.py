"""The clients: what each expects in its configuration, for a server that it starts and for one behind a URL."""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import quote, urlencode

import msgspec

from gateway.client_configs.json_notation import JsonNotation
from gateway.client_configs.notation import Notation
from gateway.client_configs.toml_notation import TomlNotation
from gateway.client_configs.yaml_notation import YamlNotation
from gateway.config.reading.interpolation import Variable
from gateway.json_types import Json


class StdioServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server that the client starts and talks to over stdio."""

    name: str
    command: str
    arguments: list[str]
    variables: Mapping[str, Variable]
    """The variables that it reads."""


class HttpServerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A running server that the client reaches by its URL."""

    name: str
    url: str
    key_variable: str | None
    """The variable of the client's environment with the API key; None if the server asks for none."""


Definition = dict[str, Json]
"""The members that a client writes of one server."""


NAME: Final = "NAME"
"""Stands for the name of a variable in the patterns of a client."""
_INPUT: Final = "${input:NAME}"
"""VS Code asks its user for a value that is written so, by an entry under `inputs`."""


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """The notation of one client, and the files in which it is written.

    A variable is written by a pattern, or its name is listed, so that the client passes its own variable on.
    """

    title: str
    source_of_variables: str
    """The source of the values of variables, as told to a person."""
    section: str
    """The key of the file under which its servers stand."""
    place: str
    """Where the file is, as told to a person."""
    file: str
    """The file that `--write` changes: of this directory, or of the user."""
    notation: Notation = JsonNotation()
    has_name: bool = False
    """Whether the entry of a server repeats its name."""
    fields: Mapping[str, Json] = {}
    """Members of each entry."""
    stdio_type: str = ""
    http_type: str = ""
    """The values of `type` for the two; empty: there is no such member."""
    command: str = "command"
    url: str = "url"
    """The names of these members, where clients differ."""
    variable: str = ""
    """The pattern of a variable in `env`; empty: none is written there."""
    optional_variable: str = ""
    """The pattern of one that need not be set, if that is another."""
    variable_names: str = ""
    """The member that lists the names of variables of a server that the client starts."""
    key: str = ""
    """The pattern of the variable with the API key in a header field; empty: none is written there."""
    key_name: str = ""
    """The member that has the name of that variable."""
    key_names: str = ""
    """The member that lists it."""
    link: Callable[[str, Definition, list[Definition]], str] | None = None
    """The link that installs a server, made of its name, entry and questions."""

    def stdio(self, server: StdioServer) -> Definition:
        """The entry of a server that the client starts."""
        environment = {
            name: pattern.replace(NAME, name)
            for name, variable in server.variables.items()
            if (pattern := self.variable if variable.is_needed else self.optional_variable or self.variable)
        }
        names = list(server.variables) if self.variable_names else []
        return {
            **self._common(server.name, self.stdio_type),
            self.command: server.command,
            "args": server.arguments,
            **({"env": environment} if environment else {}),
            **({self.variable_names: names} if names else {}),
        }

    def http(self, server: HttpServerEntry) -> Definition:
        """The entry of a server behind a URL."""
        entry = {**self._common(server.name, self.http_type), self.url: server.url}
        name = server.key_variable
        if name is not None:
            members: Definition = {
                "headers": {"Authorization": f"Bearer {self.key.replace(NAME, name)}"} if self.key else None,
                self.key_name: name,
                self.key_names: [name],
            }
            entry |= {member: value for member, value in members.items() if member and value}
        return entry

    def questions(self, server: StdioServer | HttpServerEntry) -> list[Definition]:
        """The entries of `inputs`: what the client is to ask its user for."""
        if self.key != _INPUT:
            return []
        if isinstance(server, StdioServer):
            return [
                _question(name, f"{name} of {server.name}", is_secret=variable.is_secret)
                for name, variable in server.variables.items()
                if variable.is_needed
            ]
        key = server.key_variable
        return [] if key is None else [_question(key, f"API key of {server.name}", is_secret=True)]

    def _common(self, name: str, type_: str) -> Definition:
        named: Definition = {"name": name} if self.has_name else {}
        return {**named, **({"type": type_} if type_ else {}), **self.fields}


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
        section="mcpServers",
        place=".mcp.json of the project (Claude Code), or claude_desktop_config.json (Settings, Developer; "
        "only servers that it starts)",
        file=".mcp.json",
        # One that is not set becomes empty, which the server treats as not set.
        variable="${NAME}",
        optional_variable="${NAME:-}",
        key="${NAME}",
        http_type="http",
    ),
    "codex": Client(
        title="Codex",
        source_of_variables="Codex takes it from its environment",
        section="mcp_servers",
        place="~/.codex/config.toml, or .codex/config.toml of a trusted project",
        file="~/.codex/config.toml",
        notation=TomlNotation(),
        variable_names="env_vars",
        # Codex refuses a token in its file, and takes the name of a variable.
        key_name="bearer_token_env_var",
    ),
    "cursor": Client(
        title="Cursor",
        source_of_variables="Cursor takes it from its environment",
        section="mcpServers",
        place="~/.cursor/mcp.json, or .cursor/mcp.json of the project",
        file="~/.cursor/mcp.json",
        variable="${env:NAME}",
        key="${env:NAME}",
        link=_cursor_link,
    ),
    "gemini": Client(
        title="Gemini CLI",
        source_of_variables="Gemini CLI takes it from its environment",
        section="mcpServers",
        place="~/.gemini/settings.json, or .gemini/settings.json of the project",
        file="~/.gemini/settings.json",
        # In older versions `url` is that of HTTP+SSE.
        url="httpUrl",
        variable="${NAME}",
        key="${NAME}",
    ),
    "goose": Client(
        title="goose",
        source_of_variables="goose takes it from its environment, or from its secrets",
        section="extensions",
        place="~/.config/goose/config.yaml",
        file="~/.config/goose/config.yaml",
        notation=YamlNotation(),
        has_name=True,
        stdio_type="stdio",
        http_type="streamable_http",
        fields={"enabled": True, "timeout": 300},
        command="cmd",
        url="uri",
        variable_names="env_keys",
        key="${NAME}",
        key_names="env_keys",
    ),
    "vscode": Client(
        title="VS Code",
        source_of_variables="VS Code asks for what is needed, and takes the rest from its environment",
        section="servers",
        place=".vscode/mcp.json of the workspace, or the command `MCP: Open User Configuration`",
        file=".vscode/mcp.json",
        stdio_type="stdio",
        http_type="http",
        variable=_INPUT,
        optional_variable="${env:NAME}",
        key=_INPUT,
        link=_vscode_link,
    ),
    "windsurf": Client(
        title="Windsurf",
        source_of_variables="Windsurf takes it from its environment",
        section="mcpServers",
        place="~/.codeium/windsurf/mcp_config.json",
        file="~/.codeium/windsurf/mcp_config.json",
        url="serverUrl",
        variable="${env:NAME}",
        key="${env:NAME}",
    ),
    "zed": Client(
        title="Zed",
        source_of_variables="Zed passes its environment on to servers that it starts. In headers it knows no "
        "variables: write the key in place of what stands in <>",
        section="context_servers",
        place="~/.config/zed/settings.json, or .zed/settings.json of the project",
        file="~/.config/zed/settings.json",
        key="<NAME>",
    ),
}
