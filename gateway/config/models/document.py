"""The main configuration file, and the sections allowed in included files."""

from typing import Annotated, Final, Literal

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from gateway.config.models.auth import Auth
from gateway.config.models.backends import Connection
from gateway.config.models.base import Model, NotEmpty, defaults_of, typed_interpolation
from gateway.config.models.databases import Database
from gateway.config.models.definition_keys import Defaults
from gateway.config.models.definitions import Prompt, Resource, Tool
from gateway.config.models.field_use import Use
from gateway.config.models.openapi import OpenApi
from gateway.config.models.server import Limits, Listen, Server
from gateway.config.models.skills import Skills
from gateway.config.models.upstreams import Upstream
from gateway.config.models.views import View
from gateway.json_types import Json
from gateway.plugin import ListKind

LISTS: Final[tuple[ListKind, ...]] = ("tools", "resources", "prompts")
"""The sections whose entries clients list, in display order."""


class Fragment(Model):
    """Sections allowed in every file: the main file and its includes."""

    include: list[str] = []
    """Globs of YAML files to include, relative to this file."""
    plugins: list[str] = []
    """Directories with Python plugins."""
    connections: dict[str, Connection] = {}
    """Settings shared by the HTTP backends of one service, by name."""
    databases: dict[str, Database] = {}
    """Database connections for `sql` backends, by name."""
    tools: dict[str, Tool] = {}
    """Tools that models can call, by name."""
    resources: dict[str, Resource] = {}
    """Resources that clients can read, by name."""
    prompts: dict[str, Prompt] = {}
    """Prompts that users can choose, by name."""
    prompt_files: list[str] = []
    """Globs of Markdown files with front matter."""
    upstreams: dict[str, Upstream] = {}
    """Other MCP servers, by name. Their tools, resources and prompts are offered here."""
    mcp_json: list[str] = []
    """JSON configuration files of MCP clients. Comments are allowed. Servers under `mcpServers` or `servers` are added
    to `upstreams`, unless the file disables them. A server that cannot be used is skipped with a warning."""
    openapi: dict[str, OpenApi] = {}
    """OpenAPI documents, by name. Their operations are offered as tools."""
    skills: list[Skills] = []
    """Globs of directories with a SKILL.md. Each is a skill that agents can load (SEP-2640)."""
    views: dict[str, View] = {}
    """Subsets of the catalog, by name. Each has a separate endpoint."""


class Audit(Model):
    """The audit log: who called what, and the outcome, as JSON lines in a file."""

    file: NotEmpty
    """Path of the log file, relative to this file. It is reopened on SIGHUP and when it has been moved away."""
    arguments: Literal["digest", "full"] = "digest"
    """Recorded arguments: `digest`, a keyed digest that identifies equal arguments, or `full`, with secrets masked."""


def _is_no_flag(value: Json) -> Json:
    value = typed_interpolation(value)
    if isinstance(value, bool):  # which Python takes for 1
        raise PydanticCustomError("version", "expected 1")
    return value


class Document(Fragment):
    """The main file, merged with its includes."""

    version: Annotated[Literal[1], BeforeValidator(_is_no_flag)] = 1
    """The version of the configuration language."""
    server: Annotated[Server, Use.SHOWN] = defaults_of(Server)
    """Information about the server for clients, and settings of its lists."""
    listen: Listen = defaults_of(Listen)
    """Addresses, paths and limits of the listener."""
    auth: Annotated[Auth | None, Use.SECRET] = None
    """API keys, access tokens, and the scopes that definitions require."""
    audit: Audit | None = None
    """The audit log: who called what."""
    limits: Limits = defaults_of(Limits)
    """Limits of the daemon."""
    defaults: Defaults = defaults_of(Defaults)
    """Defaults of tools, resources and prompts."""


MAIN_FILE_ONLY: Final = frozenset(Document.model_fields) - frozenset(Fragment.model_fields)
"""Sections that are allowed only in the main file, not in included files."""
