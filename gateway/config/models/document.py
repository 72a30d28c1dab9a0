"""The main file and its includes, and the sections `skills`, `views`, `databases` and `audit`."""

from collections.abc import Iterator
from typing import Annotated, Final, Literal
from urllib.parse import unquote, urlsplit

from pydantic import BeforeValidator, model_validator
from pydantic_core import PydanticCustomError

from gateway.config.models.auth import Auth
from gateway.config.models.backends import Connection
from gateway.config.models.base import (
    DISTINCT,
    Flag,
    Model,
    NotEmpty,
    PositiveCount,
    Use,
    defaults_of,
    matching,
    requires,
    text_for,
    typed_interpolation,
)
from gateway.config.models.definition_keys import Access, Defaults
from gateway.config.models.definitions import Prompt, Resource, Tool
from gateway.config.models.openapi import OpenApi
from gateway.config.models.server import Limits, Listen, Server
from gateway.config.models.upstreams import Upstream
from gateway.json_types import Json
from gateway.plugin import ListKind


class SkillDirectories(Model):
    """Directories that each contain a skill: a SKILL.md and the files that it refers to."""

    dir: NotEmpty
    """A directory, or a glob of directories, relative to this file. Each directory must have the name of its skill."""
    tags: Annotated[list[str], DISTINCT, Use.SHOWN] = []
    """Tags for grouping and rules."""
    access: Access | None = None
    """Scopes that callers need to read the skills. Default: none."""


Skills = Annotated[SkillDirectories, text_for("dir")]
"""An entry of `skills`. Plain text is the glob."""

SKILL_FILE: Final = "SKILL.md"


class Selection(Model):
    """Selects tools, resources and prompts that match at least one of these keys."""

    tags: Annotated[list[NotEmpty], DISTINCT] = []
    """Tags. Definitions of any kind with at least one of these tags match."""
    tools: Annotated[list[NotEmpty], DISTINCT] = []
    """Globs that match names of tools: `gh_*`."""
    resources: Annotated[list[NotEmpty], DISTINCT] = []
    """Globs that match names, URIs and URI templates of resources."""
    prompts: Annotated[list[NotEmpty], DISTINCT] = []
    """Globs that match names of prompts."""

    @model_validator(mode="after")
    def _check_not_empty(self) -> "Selection":
        if not self.model_fields_set:
            raise PydanticCustomError("nothing_given", "needs at least one of `tags`, `tools`, `resources`, `prompts`")
        return self


class View(Model):
    """A subset of the catalog at `/mcp/<name>`, `/sse/<name>` and `--stdio --view <name>`."""

    include: Selection | None = None
    """Definitions in the view. If set, only matching tools, resources and prompts are included. Default: everything."""
    exclude: Selection | None = None
    """Definitions to remove from the view even if they are included."""
    instructions: Annotated[str | None, Use.DESCRIPTION] = None
    """Instructions that a model should know before it uses the view. Default: `server.instructions`."""
    access: Access | None = None
    """Scopes that callers need for the view. Default: none. Definitions in the view still require their own scopes."""
    search: Flag = False
    """List only two tools: `search_tools` finds tools, and `call_tool` calls them. Calls are checked, counted and
    recorded under the real name. Tools can also be called directly, as in any view."""
    always: Annotated[list[NotEmpty], DISTINCT] = []
    """Globs that match names of tools to list in addition to the two of `search`."""

    _check_always = requires("always", "search")


class Database(Model):
    """A database for `sql` backends. Requires the extra `sql` (SQLite, PostgreSQL), `mysql` or `duckdb`."""

    url: Annotated[
        str, matching(r"[A-Za-z][\w+.-]*:.+", "a URL such as postgresql://app@db/shop or sqlite:notes.db"), Use.SECRET
    ]
    """An SQLAlchemy URL (`postgresql://app@db/shop`, `mysql://app@db/shop`), or `sqlite:` or `duckdb:` and a path
    relative to this file."""
    password: Annotated[str | None, Use.SECRET] = None
    """Password of the user in the URL, unless the URL contains it."""
    pool: PositiveCount = 5
    """Maximum number of connections. A call waits for a free connection within its `timeout`. For SQLite, this is the
    number of readers, and the same number of writers is allowed."""

    def secrets(self) -> Iterator[str]:
        """Yield the passwords of this entry."""
        if self.password:
            yield self.password
        try:
            written = urlsplit(self.url).password
        except ValueError:
            return
        if written:
            yield written
            # Drivers decode the password and can quote it in errors.
            yield unquote(written)


LISTS: Final[tuple[ListKind, ...]] = ("tools", "resources", "prompts")
"""Sections that clients can list, in display order."""


class Audit(Model):
    """The audit log: who called what, and the outcome, as JSON lines in a file."""

    file: NotEmpty
    """Path of the log file, relative to this file. If the file is moved, the log continues in a new file."""
    arguments: Literal["digest", "full"] = "digest"
    """Recorded arguments: `digest`, a keyed digest that identifies equal arguments, or `full`, with secrets masked."""
    labels: dict[NotEmpty, str] = {}
    """Further fields of each call's record, such as `team: "{{ caller.claims.team }}"`."""


def _is_no_flag(value: Json) -> Json:
    value = typed_interpolation(value)
    if isinstance(value, bool):  # Python treats true as 1
        raise PydanticCustomError("version", "expected 1")
    return value


class Document(Model):
    """The main file, merged with its includes."""

    include: list[str] = []
    """Globs of YAML files to include, relative to this file."""
    plugins: list[str] = []
    """Directories with Python plugins."""
    connections: dict[str, Connection] = {}
    """Settings shared by the tools and resources that call one HTTP service, by name."""
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


MAIN_FILE_ONLY: Final = frozenset(Document.model_fields) - {
    *("include", "plugins", "connections", "databases", "tools", "resources", "prompts", "prompt_files"),
    *("upstreams", "mcp_json", "openapi", "skills", "views"),
}
"""Sections that included files cannot contain."""
