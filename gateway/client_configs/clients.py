"""The supported MCP clients, and how each writes a server into its configuration."""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import quote, urlencode

import msgspec

from gateway.client_configs.json_notation import JsonNotation
from gateway.client_configs.notation import Notation, TomlNotation, YamlNotation
from gateway.config.reading.interpolation import Variable
from gateway.json_types import Json


class StdioServer(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    command: str
    arguments: list[str]
    variables: Mapping[str, Variable]
    """Environment variables that the server reads."""


class HttpServerEntry(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    url: str
    key_variable: str | None
    """Client variable with the API key, or None if the server has no authentication."""


Definition = dict[str, Json]


NAME: Final = "NAME"
"""Placeholder for a variable's name in the patterns below."""
_INPUT: Final = "${input:NAME}"
"""VS Code prompts for inputs that are declared under `inputs`."""


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration format of one client.

    Variables are written as a pattern. If the client passes its environment on, only their names are listed.
    """

    title: str
    source_of_variables: str
    """Text for users."""
    section: str
    """Key that contains the servers."""
    place: str
    """Location of the file, as text for users."""
    file: str
    """File that `--write` changes."""
    notation: Notation = JsonNotation()
    has_name: bool = False
    """Whether an entry repeats the name of the server."""
    fields: Mapping[str, Json] = {}
    stdio_type: str = ""
    http_type: str = ""
    """Value of `type` for each transport, or "" to omit it."""
    command: str = "command"
    url: str = "url"
    variable: str = ""
    """Pattern for variables in `env`, or "" if the client does not write them there."""
    optional_variable: str = ""
    """Pattern for optional variables. Default: `variable`."""
    variable_names: str = ""
    """Member that lists the variables of a stdio server."""
    key: str = ""
    """Pattern for the variable with the API key in a header field, or ""."""
    key_name: str = ""
    """Member that names the variable with the API key."""
    key_names: str = ""
    """Member that lists the variable with the API key."""
    link: Callable[[str, Definition, list[Definition]], str] | None = None
    """Creates an installation link from the name, entry and inputs of a server."""

    def stdio(self, server: StdioServer) -> Definition:
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
        """Return the `inputs` that the client prompts for."""
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
        source_of_variables="Claude Code reads its environment. For Claude Desktop, add the values to its file",
        section="mcpServers",
        place=".mcp.json of the project (Claude Code), or claude_desktop_config.json (Settings, Developer; "
        "only servers that it starts)",
        file=".mcp.json",
        # The server treats the empty value as unset.
        variable="${NAME}",
        optional_variable="${NAME:-}",
        key="${NAME}",
        http_type="http",
    ),
    "codex": Client(
        title="Codex",
        source_of_variables="Codex reads its environment",
        section="mcp_servers",
        place="~/.codex/config.toml, or .codex/config.toml of a trusted project",
        file="~/.codex/config.toml",
        notation=TomlNotation(),
        variable_names="env_vars",
        # Codex reads tokens only from variables.
        key_name="bearer_token_env_var",
    ),
    "cursor": Client(
        title="Cursor",
        source_of_variables="Cursor reads its environment",
        section="mcpServers",
        place="~/.cursor/mcp.json, or .cursor/mcp.json of the project",
        file="~/.cursor/mcp.json",
        variable="${env:NAME}",
        key="${env:NAME}",
        link=_cursor_link,
    ),
    "gemini": Client(
        title="Gemini CLI",
        source_of_variables="Gemini CLI reads its environment",
        section="mcpServers",
        place="~/.gemini/settings.json, or .gemini/settings.json of the project",
        file="~/.gemini/settings.json",
        # Older versions use `url` for HTTP+SSE.
        url="httpUrl",
        variable="${NAME}",
        key="${NAME}",
    ),
    "goose": Client(
        title="goose",
        source_of_variables="goose reads its environment or its secrets",
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
        source_of_variables="VS Code asks for required values, and reads the others from its environment",
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
        source_of_variables="Windsurf reads its environment",
        section="mcpServers",
        place="~/.codeium/windsurf/mcp_config.json",
        file="~/.codeium/windsurf/mcp_config.json",
        url="serverUrl",
        variable="${env:NAME}",
        key="${env:NAME}",
    ),
    "zed": Client(
        title="Zed",
        source_of_variables="Zed passes its environment on to servers that it starts. It does not replace "
        "variables in headers. Replace <NAME> with the key",
        section="context_servers",
        place="~/.config/zed/settings.json, or .zed/settings.json of the project",
        file="~/.config/zed/settings.json",
        key="<NAME>",
    ),
}
