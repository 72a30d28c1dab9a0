"""The supported MCP clients, and the entry that each expects for a stdio or HTTP server."""

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
    """A server that the client starts and uses over stdio."""

    name: str
    command: str
    arguments: list[str]
    variables: Mapping[str, Variable]
    """Environment variables that it reads."""


class HttpServerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A running server that the client reaches by URL."""

    name: str
    url: str
    key_variable: str | None
    """Variable with the API key in the client's environment, or None if no key is required."""


Definition = dict[str, Json]
"""The members of a server's entry."""


NAME: Final = "NAME"
"""Placeholder for the name of a variable in a client's patterns."""
_INPUT: Final = "${input:NAME}"
"""VS Code prompts for such values, which are declared under `inputs`."""


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """The format of one client's configuration.

    Variables are written as a pattern, or listed by name if the client passes them on.
    """

    title: str
    source_of_variables: str
    """Where the values of variables come from, as text for users."""
    section: str
    """The key of the file that contains the servers."""
    place: str
    """Location of the file, as text for users."""
    file: str
    """The file that `--write` changes: a project or user file."""
    notation: Notation = JsonNotation()
    has_name: bool = False
    """Whether an entry repeats the server's name."""
    fields: Mapping[str, Json] = {}
    """Additional members of each entry."""
    stdio_type: str = ""
    http_type: str = ""
    """Values of `type` for the two transports, or "" for no such member."""
    command: str = "command"
    url: str = "url"
    """Names of these members."""
    variable: str = ""
    """Pattern of a variable in `env`, or "" if variables are not written there."""
    optional_variable: str = ""
    """Pattern of an optional variable, if it differs."""
    variable_names: str = ""
    """Member that lists the names of a stdio server's variables."""
    key: str = ""
    """Pattern of the variable with the API key in a header field, or ""."""
    key_name: str = ""
    """Member with the name of that variable."""
    key_names: str = ""
    """Member that lists that variable."""
    link: Callable[[str, Definition, list[Definition]], str] | None = None
    """Returns a link that installs a server, from its name, entry and questions."""

    def stdio(self, server: StdioServer) -> Definition:
        """Return the entry of a stdio server."""
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
        """Return the entry of an HTTP server."""
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
        """Return the entries of `inputs` that the client prompts for."""
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
        # An unset variable becomes empty, which the server treats as unset.
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
        # Codex does not accept a token in its file, only the name of a variable.
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
        # In older versions, `url` means HTTP+SSE.
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
