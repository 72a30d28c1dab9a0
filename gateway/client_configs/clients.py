"""The supported MCP clients, and the format of a server in the configuration of each client."""

import base64
import json
import sys
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import quote, urlencode

import msgspec

from gateway.client_configs.notation import JSON, TOML, YAML, Notation
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
    """Environment variable of the client that contains the API key, or None if the server needs no key."""


Definition = dict[str, Json]


NAME: Final = "NAME"
"""Placeholder for a variable's name in the patterns below."""
LITERAL: Final = "<NAME>"
"""Placeholder that users replace, for clients that do not read variables."""


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration format of one client.

    Clients refer to environment variables by a pattern that contains `NAME`, or by a list of names.
    """

    title: str
    source_of_variables: str
    """A note for users about where the client gets the values of variables."""
    section: str = "mcpServers"
    """Key that contains the servers."""
    place: str
    """Location of the file or settings, as text for users."""
    file: str = ""
    """File that `--write` changes, or "" if servers are only added in the client's settings."""
    url_steps: tuple[str, ...] = ()
    """Instructions to add a server by its URL, if the file accepts no URLs. Templates of `name`, `url` and `key`."""
    notation: Notation = JSON
    has_name: bool = False
    """Whether an entry repeats the name of the server."""
    fields: Mapping[str, Json] = {}
    stdio_type: str = ""
    http_type: str = ""
    """Value of `type` for HTTP servers, or "" to omit `type`."""
    command: str = "command"
    url: str = "url"
    variable: str = ""
    """Pattern for variables in `env`, or "" to leave variables out of `env`."""
    optional_variable: str = ""
    """Pattern for optional variables. Default: `variable`."""
    variable_names: str = ""
    """Member that contains the list of variable names of a stdio server."""
    key: str = ""
    """Pattern for the API key in the Authorization header, or "" to omit the header."""
    key_name: str = ""
    """Member that contains the name of the variable with the API key."""
    key_names: str = ""
    """Like `key_name`, but the member contains a list."""
    has_inputs: bool = False
    """Whether the client prompts for inputs that are declared under `inputs`."""
    link: Callable[[str, Definition, list[Definition]], str] | None = None
    """Creates an installation link from the name, entry and inputs of a server."""

    def entry(self, server: StdioServer | HttpServerEntry) -> Definition:
        """Return the definition of a server, as written below its name in `section`."""
        is_stdio = isinstance(server, StdioServer)
        members: Definition = {
            "name": server.name if self.has_name else None,
            "type": self.stdio_type if is_stdio else self.http_type,
            **self.fields,
            **(self._stdio(server) if isinstance(server, StdioServer) else self._http(server)),
        }
        return {member: value for member, value in members.items() if member and value not in (None, "", {})}

    def _stdio(self, server: StdioServer) -> Definition:
        environment = {
            name: pattern.replace(NAME, name)
            for name, variable in server.variables.items()
            if (pattern := self.variable if variable.is_needed else self.optional_variable or self.variable)
        }
        return {
            self.command: server.command,
            "args": server.arguments,
            "env": environment,
            self.variable_names: list(server.variables) or None,
        }

    def _http(self, server: HttpServerEntry) -> Definition:
        name = server.key_variable
        if name is None:
            return {self.url: server.url}
        authorization = {"Authorization": f"Bearer {self.key.replace(NAME, name)}"} if self.key else None
        return {self.url: server.url, "headers": authorization, self.key_name: name, self.key_names: [name]}

    def uses_steps(self, server: StdioServer | HttpServerEntry) -> bool:
        return isinstance(server, HttpServerEntry) and bool(self.url_steps)

    def text(self, server: StdioServer | HttpServerEntry) -> str:
        """Return the text to paste, or the steps to follow."""
        if isinstance(server, HttpServerEntry) and self.url_steps:
            key = f"Bearer, with the value of {server.key_variable}" if server.key_variable else "none, or OAuth"
            steps = [step.format(name=server.name, url=server.url, key=key) for step in self.url_steps]
            return "".join(f"{number}. {step}\n" for number, step in enumerate(steps, 1))
        questions = self.questions(server)
        inputs: Definition = {"inputs": questions} if questions else {}
        return self.notation.render({**inputs, self.section: {server.name: self.entry(server)}})

    def questions(self, server: StdioServer | HttpServerEntry) -> list[Definition]:
        """Return the `inputs` that the client prompts for."""
        if not self.has_inputs:
            return []
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


# The file of Claude Desktop accepts only stdio servers.
_CLAUDE_DESKTOP: Final = "Library/Application Support" if sys.platform == "darwin" else ".config"

CLIENTS: Final[Mapping[str, Client]] = {
    "claude": Client(
        title="Claude Code",
        source_of_variables="Claude Code reads its environment",
        place=".mcp.json of the project",
        file=".mcp.json",
        # `${NAME:-}` can be an empty value, which the server treats as unset.
        variable="${NAME}",
        optional_variable="${NAME:-}",
        key="${NAME}",
        http_type="http",
    ),
    "claude-desktop": Client(
        title="Claude Desktop",
        source_of_variables="Claude Desktop does not replace variables. Replace <NAME> with the value",
        place="Settings > Developer > Edit Config, which opens claude_desktop_config.json",
        file=f"~/{_CLAUDE_DESKTOP}/Claude/claude_desktop_config.json",
        variable=LITERAL,
        # https://support.claude.com/en/articles/11175166
        url_steps=(
            "Open Settings > Connectors and choose Add custom connector.",
            "Enter the name {name} and the URL {url}",
            "Sign in if the server uses OAuth. Custom connectors cannot send API keys.",
            "Claude connects from the internet, so the URL must be public.",
            "For a server on this machine, use `client-config claude-desktop CONFIG` instead.",
        ),
    ),
    "chatgpt": Client(
        title="ChatGPT",
        source_of_variables="",
        place="Settings > Apps & Connectors, on the web",
        # https://developers.openai.com/apps-sdk/deploy/connect-chatgpt
        url_steps=(
            "Open Settings > Apps & Connectors > Advanced settings and turn on Developer mode.",
            "Open Settings > Apps & Connectors and choose Create.",
            "Enter the name {name} and the MCP server URL {url}",
            "Select OAuth, or No authentication. ChatGPT cannot send API keys.",
            "ChatGPT connects from the internet, so the URL must be public and use HTTPS.",
        ),
    ),
    "cline": Client(
        title="Cline",
        source_of_variables="Cline reads the environment of its editor or terminal",
        place="MCP Servers > Configure > Configure MCP Servers in the editor, or "
        "~/.cline/data/settings/cline_mcp_settings.json for the command line",
        file="~/.cline/data/settings/cline_mcp_settings.json",
        stdio_type="stdio",
        # Without a type, Cline uses HTTP+SSE.
        http_type="streamableHttp",
        variable="${env:NAME}",
        key="${env:NAME}",
    ),
    "codex": Client(
        title="Codex",
        source_of_variables="Codex reads its environment",
        section="mcp_servers",
        place="~/.codex/config.toml, or .codex/config.toml of a trusted project",
        file="~/.codex/config.toml",
        notation=TOML,
        variable_names="env_vars",
        # Codex reads tokens only from variables.
        key_name="bearer_token_env_var",
    ),
    "cursor": Client(
        title="Cursor",
        source_of_variables="Cursor reads its environment",
        place="~/.cursor/mcp.json, or .cursor/mcp.json of the project",
        file="~/.cursor/mcp.json",
        variable="${env:NAME}",
        key="${env:NAME}",
        link=_cursor_link,
    ),
    "gemini": Client(
        title="Gemini CLI",
        source_of_variables="Gemini CLI reads its environment",
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
        notation=YAML,
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
    "jetbrains": Client(
        title="JetBrains IDEs",
        source_of_variables="JetBrains IDEs do not replace variables. Replace <NAME> with the value",
        place="Settings > Tools > AI Assistant > Model Context Protocol (MCP) > Add > As JSON, or "
        "~/.junie/mcp/mcp.json for Junie",
        file="~/.junie/mcp/mcp.json",
        variable=LITERAL,
        key=LITERAL,
    ),
    "open-webui": Client(
        title="Open WebUI",
        source_of_variables="",
        place="Admin Settings > External Tools",
        # https://docs.openwebui.com/features/mcp
        url_steps=(
            "As an administrator, open Admin Settings > External Tools and choose +",
            "Select the type MCP (Streamable HTTP).",
            "Enter the name {name} and the URL {url}",
            "Select the authentication: {key}",
            "Open WebUI connects from its own server. In a container, 127.0.0.1 is the container itself.",
        ),
    ),
    "vscode": Client(
        title="VS Code",
        source_of_variables="VS Code asks for required values, and reads the others from its environment",
        section="servers",
        place=".vscode/mcp.json of the workspace, or the command `MCP: Open User Configuration`",
        file=".vscode/mcp.json",
        stdio_type="stdio",
        http_type="http",
        variable="${input:NAME}",
        optional_variable="${env:NAME}",
        key="${input:NAME}",
        has_inputs=True,
        link=_vscode_link,
    ),
    "windsurf": Client(
        title="Windsurf",
        source_of_variables="Windsurf reads its environment",
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
        key=LITERAL,
    ),
}
