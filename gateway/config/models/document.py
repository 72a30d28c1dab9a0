"""The whole file, and the sections that an included file may have."""

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
"""The sections whose entries clients list, in the order in which they are shown."""


class Fragment(Model):
    """The sections of every file: the main one, and those that it includes."""

    include: list[str] = []
    """Globs of YAML files, relative to this one."""
    plugins: list[str] = []
    """Directories of Python files."""
    connections: dict[str, Connection] = {}
    """Settings that the HTTP backends of one service share, by name."""
    databases: dict[str, Database] = {}
    """What `sql` backends connect to, by name."""
    tools: dict[str, Tool] = {}
    """What models can call, by name."""
    resources: dict[str, Resource] = {}
    """What clients can read, by name."""
    prompts: dict[str, Prompt] = {}
    """What users can choose, by name."""
    prompt_files: list[str] = []
    """Globs of Markdown files with front matter."""
    upstreams: dict[str, Upstream] = {}
    """Other MCP servers, by name: their tools, resources and prompts are offered here."""
    mcp_json: list[str] = []
    """JSON files of MCP clients; comments are allowed. The servers under `mcpServers` or `servers` join `upstreams`,
    except those that the file turns off. A server that cannot be used here is left out with a warning."""
    openapi: dict[str, OpenApi] = {}
    """OpenAPI documents, by name: their operations are offered here as tools."""
    skills: list[Skills] = []
    """Globs of directories with a SKILL.md: each is a skill that agents can load (SEP-2640)."""
    views: dict[str, View] = {}
    """Parts of what is offered, by name, each with an endpoint of its own."""


class Audit(Model):
    """A log of who called what, and how it ended: JSON lines, appended to a file."""

    file: NotEmpty
    """Path, relative to this file. It is opened anew when it was moved away, and on SIGHUP."""
    arguments: Literal["digest", "full"] = "digest"
    """What is kept of arguments: a keyed digest, by which like calls are told, or all of them, secrets masked."""


def _is_no_flag(value: Json) -> Json:
    value = typed_interpolation(value)
    if isinstance(value, bool):  # which Python takes for 1
        raise PydanticCustomError("version", "expected 1")
    return value


class Document(Fragment):
    """The main file, and the result of merging it with its includes."""

    version: Annotated[Literal[1], BeforeValidator(_is_no_flag)] = 1
    """The version of the configuration language."""
    server: Annotated[Server, Use.SHOWN] = defaults_of(Server)
    """The server's introduction to clients, and its lists."""
    listen: Listen = defaults_of(Listen)
    """Addresses, paths and limits of the listener."""
    auth: Annotated[Auth | None, Use.SECRET] = None
    """API keys, access tokens, and the scopes that definitions need."""
    audit: Audit | None = None
    """A log of who called what."""
    limits: Limits = defaults_of(Limits)
    """Limits of what the daemon serves."""
    defaults: Defaults = defaults_of(Defaults)
    """Defaults of tools, resources and prompts."""


MAIN_FILE_ONLY: Final = frozenset(Document.model_fields) - frozenset(Fragment.model_fields)
"""Sections that a file may hold only if it is not included by another."""
