"""Models of `upstreams`, the other MCP servers.

Entries copied from a client's `mcpServers` work without changes.
"""

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, PlainValidator, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from gateway.config.models.backends import AllowPrivate, ClientTls, Sandbox
from gateway.config.models.base import (
    DISTINCT,
    ONE_OR_MANY,
    SCALAR_SCHEMA,
    Count,
    Flag,
    Model,
    PositiveCount,
    ShortForm,
    Use,
    defaults_of,
    exactly_one,
    keep_scalar,
    misplaced,
    not_together,
    typed_interpolation,
)
from gateway.config.models.definition_keys import Access, NamePrefix, Requires
from gateway.config.models.definitions import PromptOverride, ResourceOverride, ToolOverride
from gateway.config.models.outbound_auth import PEM, OutboundAuth
from gateway.config.models.quantities import Duration, PositiveDuration, WrittenRateLimit
from gateway.json_types import Json

Text = Annotated[str, PlainValidator(lambda value: str(keep_scalar(value))), WithJsonSchema(SCALAR_SCHEMA)]
"""Text or a bare number, not a template."""

# MCP 2025-11-25 basic/authorization "Access Token Privilege Restriction": tokens of clients must not be passed on.
_BOUND_TO_ONE_HOP: Final = re.compile(r"(?i)authorization|cookie|host|mcp-.*|forwarded|x-forwarded-.*")


def _may_be_forwarded(name: str) -> str:
    if _BOUND_TO_ONE_HOP.fullmatch(name):
        raise PydanticCustomError("forwarded", "is intended for the gateway itself and is never forwarded")
    return name


class _Selection(Model):
    """Globs that select items of one of the upstream's lists."""

    include: Annotated[list[str], DISTINCT, ONE_OR_MANY] = ["*"]
    """Globs. Only matching items are offered."""
    exclude: Annotated[list[str], DISTINCT, ONE_OR_MANY] = []
    """Globs. Matching items are not offered."""


class ToolSelection(_Selection):
    """Selects the tools of an upstream. Globs match the names on the upstream."""

    override: dict[str, ToolOverride] = {}
    """Changes to tools, by their name on the upstream."""


class ResourceSelection(_Selection):
    """Selects the resources and resource templates of an upstream. Globs match their URIs."""

    override: dict[str, ResourceOverride] = {}
    """Changes to resources, by their URI or URI template on the upstream."""


class PromptSelection(_Selection):
    """Selects the prompts of an upstream. Globs match the names on the upstream."""

    override: dict[str, PromptOverride] = {}
    """Changes to prompts, by their name on the upstream."""


def _all_or_none(value: Json) -> Json:
    value = typed_interpolation(value)
    if isinstance(value, bool):
        return {} if value else {"include": []}
    return value


_ALL_OR_NONE: Final = ShortForm(_all_or_none, {"type": "boolean"})
"""True selects all items of a list, false none."""


def _sandboxed(value: Json) -> Json:
    """Convert `read` and `write` to `readable` and `writable`."""
    if not isinstance(value, dict):
        return value
    return {_SANDBOX_KEYS.get(key, key): member for key, member in value.items()}


_PATHS: Final = ("readable", "writable")
_SANDBOX_KEYS: Final = {"read": "readable", "write": "writable"}

Transport = Literal["stdio", "http", "streamable-http", "streamable_http", "streamableHttp", "sse"]
"""Transports, including their names in client configurations."""

_WEB_URL: Final = re.compile(r"https?://[^\s/?#{}]+(?:[/?#][^\s{}]*)?", re.IGNORECASE)
_OF_STDIO: Final = ("args", "env", "cwd", "sandbox")
_OF_HTTP: Final = ("headers", "auth", "allow_private", "tls", "forward_headers")


class Upstream(Model):
    """Another MCP server, defined by a `command` or a `url`. Its tools, resources and prompts are offered here."""

    command: Annotated[Annotated[list[Text], Field(min_length=1), ONE_OR_MANY] | None, Use.SECRET] = None
    """A program that uses MCP over its standard streams. A list also contains its arguments."""
    args: Annotated[list[Text], Use.SECRET] = []
    """Arguments of the program."""
    env: Annotated[dict[str, Text], Use.SECRET] = {}
    """Environment variables, in addition to PATH, HOME, LANG, LC_*, TZ and TMPDIR."""
    cwd: Annotated[str, PlainValidator(lambda value: str(keep_scalar(value)))] | None = None
    """Working directory, relative to this file. Default: the directory of this file."""
    sandbox: (
        Annotated[Sandbox, ShortForm(_sandboxed, {"type": "object", "properties": {key: {} for key in _SANDBOX_KEYS}})]
        | None
    ) = None
    """Sandbox of the program. `read` and `write` are short for `readable` and `writable`."""
    url: Annotated[Text | None, Use.SECRET] = None
    """URL of an MCP endpoint. With a `connection`, the URL is relative to the `base_url` of the connection."""
    headers: Annotated[dict[str, Text], Use.SECRET] = {}
    """Header fields sent with each request."""
    type: Transport | None = None
    """Transport: `stdio`, `http` (Streamable HTTP, also written streamable-http, streamable_http, streamableHttp) or
    `sse`. Default: detected."""
    transport: Transport | None = None
    """Another name for `type`."""
    connection: str | None = None
    """Name of an entry in `connections`. Its base URL, headers, TLS and `auth` apply to this upstream."""
    auth: Annotated[OutboundAuth | None, Use.SECRET] = None
    """Authentication to the upstream. Without an `issuer`, the upstream's metadata (RFC 9728) names the issuer."""
    allow_private: AllowPrivate | None = None
    """Private addresses to allow: hosts and CIDR ranges, or true for all, including cloud metadata services."""
    tls: Annotated[ClientTls | None, Use.SECRET] = None
    """TLS settings."""
    forward_headers: Annotated[list[Annotated[str, AfterValidator(_may_be_forwarded)]], DISTINCT] = []
    """Header fields to forward from the caller's request. Fields for this server, such as `Cookie`, are not allowed."""
    prefix: Annotated[NamePrefix | None, Use.NAME] = None
    """Prefix for the names of tools and prompts. Default `<name>_`. Can be empty."""
    uri_prefix: Annotated[str | None, Use.NAME] = None
    """Prefix for all URIs: with `docs+`, `file:///a` becomes `docs+file:///a`."""
    tools: Annotated[ToolSelection, _ALL_OR_NONE] = defaults_of(ToolSelection)
    """Tools to offer, or false for none."""
    resources: Annotated[ResourceSelection, _ALL_OR_NONE] = defaults_of(ResourceSelection)
    """Resources and resource templates to offer, or false for none."""
    prompts: Annotated[PromptSelection, _ALL_OR_NONE] = defaults_of(PromptSelection)
    """Prompts to offer, or false for none."""
    instructions: Flag = True
    """Whether to append the upstream's `instructions`, under its name and truncated to 4 KiB, to the instructions of
    `server`. Only applies if at least one of its tools, resources or prompts is offered."""
    session: Literal["per_client", "shared"] | None = None
    """Whether each client has its own session and, for stdio, its own process. Default `per_client`, or `shared` for
    HTTP servers without sessions."""
    max_sessions: PositiveCount = 100
    """Maximum number of concurrent sessions with `per_client`. The least recently used idle session ends first."""
    start: Literal["lazy", "eager"] = "lazy"
    """`eager` keeps the upstream running. `lazy` starts the upstream at the first call."""
    idle: PositiveDuration = timedelta(minutes=10)
    """How long a lazy upstream keeps running without calls."""
    era: Literal["legacy", "modern"] | None = None
    """`legacy` sessions start with `initialize`, `modern` (2026-07-28) sessions do not. Default: detected."""
    timeout: PositiveDuration | None = None
    """Time limit of a call. Default 60s."""
    connect_timeout: PositiveDuration = timedelta(seconds=30)
    """Time limit to connect, including process start and handshake, and then to read the lists. Time spent waiting for
    other upstreams to start does not count."""
    concurrency: PositiveCount | None = None
    """Maximum number of concurrent calls of the whole upstream. Default 16."""
    queue: Count | None = None
    """Maximum number of waiting calls. Further calls are rejected. Default 64."""
    rate_limit: WrittenRateLimit | None = None
    """Rate limit of each tool, resource and prompt, such as 10/minute per caller."""
    access: Access | None = None
    """Scopes that callers need for the tools, resources and prompts. Default: none."""
    tags: Annotated[list[str], DISTINCT, Use.SHOWN] = []
    """Tags for grouping and rules."""
    requires: Requires = defaults_of(Requires)
    """Requirements that must be met before the tools, resources and prompts are offered."""
    required: Flag = False
    """Report the daemon as not ready while this upstream is unreachable."""
    health: Duration = timedelta(seconds=30)
    """How often an idle `eager` upstream is checked. 0 disables the check."""
    validate_: Flag = Field(default=True, alias="validate")
    """Whether the gateway validates arguments against the tools' `inputSchema` before it calls the upstream."""
    sampling: Flag = True
    """Allow the upstream to use the models of clients (sampling)."""
    elicitation: Flag = True
    """Allow the upstream to ask the users of clients (elicitation)."""
    roots: Flag = True
    """Allow the upstream to read the roots of clients."""
    logging: Flag = True
    """Forward the upstream's log messages to clients."""

    @property
    def kind(self) -> Literal["stdio", "http", "sse"] | None:
        """The configured transport, or None if it must be detected."""
        said = self.type or self.transport
        if said is None:
            return "stdio" if self.command is not None else None
        return said if said in {"stdio", "sse"} else "http"

    @property
    def argv(self) -> tuple[str, ...]:
        return (*(self.command or ()), *self.args)

    def below(self, directory: Path) -> Self:
        """Return a copy in which relative paths are resolved against `directory`."""
        changes: dict[str, Json] = {}
        if self.command is not None:
            changes["cwd"] = os.path.normpath(directory / (self.cwd or ""))
        if self.sandbox is not None:
            lists = {key: [str(directory / path) for path in getattr(self.sandbox, key)] for key in _PATHS}
            changes["sandbox"] = self.sandbox.model_copy(update=lists)
        if self.tls is not None:
            files = {key: str(directory / path) for key in ("ca", "cert", "key") if (path := getattr(self.tls, key))}
            changes["tls"] = self.tls.model_copy(update=files)
        if self.auth is not None:
            changes["auth"] = _below(self.auth, directory)
        return self.model_copy(update=changes)

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        not_together(self, "type", "transport")
        # A connection on its own provides the URL.
        if self.connection is None or self.command is not None:
            exactly_one(self, of=("command", "url"), what="a server")
        if self.connection is not None and self.command is not None:
            raise misplaced("connection", requires="url")
        if self.url and self.connection is None and not _WEB_URL.fullmatch(self.url):
            raise PydanticCustomError("url", "`url` must be a URL such as https://example.com/mcp", {"culprit": "url"})
        is_stdio = self.command is not None
        for key in _OF_HTTP if is_stdio else _OF_STDIO:
            if getattr(self, key):  # clients' files often contain empty values
                raise misplaced(key, requires="url" if is_stdio else "command")
        said = self.type or self.transport
        if said is not None and (said == "stdio") is not is_stdio:
            raise misplaced("type" if self.type else "transport", requires="command" if said == "stdio" else "url")
        return self


def _below(auth: OutboundAuth, directory: Path) -> OutboundAuth:
    client = auth.client
    # not a path
    if client is None or client.private_key is None or PEM in client.private_key:
        return auth
    name = next(name for name in type(auth).model_fields if getattr(auth, name) is client)
    return auth.model_copy(
        update={name: client.model_copy(update={"private_key": str(directory / client.private_key)})}
    )
