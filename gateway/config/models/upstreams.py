"""The models of `upstreams:`: other MCP servers, whose primitives are offered as this server's own.

An entry of any client's `mcpServers` is one as it stands; our own keys may stand beside those.
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
    defaults_of,
    exactly_one,
    keep_scalar,
    misplaced,
    not_together,
    typed_interpolation,
)
from gateway.config.models.definition_keys import Access, NamePrefix, Requires
from gateway.config.models.field_use import Use
from gateway.config.models.outbound_auth import PEM, OutboundAuth
from gateway.config.models.overrides import PromptOverride, ResourceOverride, ToolOverride
from gateway.config.models.quantities import Duration, PositiveDuration, WrittenRateLimit
from gateway.json_types import Json

Text = Annotated[str, PlainValidator(lambda value: str(keep_scalar(value))), WithJsonSchema(SCALAR_SCHEMA)]
"""Text without templates in it, or a bare number."""

# MCP 2025-11-25 basic/authorization "Access Token Privilege Restriction": a server must not pass the client's token on.
_BOUND_TO_ONE_HOP: Final = re.compile(r"(?i)authorization|cookie|host|mcp-.*|forwarded|x-forwarded-.*")


def _may_be_forwarded(name: str) -> str:
    if _BOUND_TO_ONE_HOP.fullmatch(name):
        raise PydanticCustomError("forwarded", "is between the caller and this server, and is never passed on")
    return name


class _Selection(Model):
    """The part of a list that is offered."""

    include: Annotated[list[str], DISTINCT, ONE_OR_MANY] = ["*"]
    """Globs; what fits none of them is not offered."""
    exclude: Annotated[list[str], DISTINCT, ONE_OR_MANY] = []
    """Globs; what fits one of them is not offered."""


class ToolSelection(_Selection):
    """The tools of an upstream that are offered. Names are the upstream's own."""

    override: dict[str, ToolOverride] = {}
    """Changes, by the upstream's own name."""


class ResourceSelection(_Selection):
    """The resources and resource templates of an upstream that are offered. Globs fit their URIs."""

    override: dict[str, ResourceOverride] = {}
    """Changes, by the upstream's own URI or URI template."""


class PromptSelection(_Selection):
    """The prompts of an upstream that are offered. Names are the upstream's own."""

    override: dict[str, PromptOverride] = {}
    """Changes, by the upstream's own name."""


def _all_or_none(value: Json) -> Json:
    value = typed_interpolation(value)
    if isinstance(value, bool):
        return {} if value else {"include": []}
    return value


_ALL_OR_NONE: Final = ShortForm(_all_or_none, {"type": "boolean"})
"""True is everything, false nothing."""


def _program_alone(value: Json) -> Json:
    return [value] if isinstance(value, str) else value


def _sandboxed(value: Json) -> Json:
    """Take `read` and `write` for `readable` and `writable`."""
    if not isinstance(value, dict):
        return value
    return {_SANDBOX_KEYS.get(key, key): member for key, member in value.items()}


_PATHS: Final = ("readable", "writable")
_SANDBOX_KEYS: Final = {"read": "readable", "write": "writable"}

Transport = Literal["stdio", "http", "streamable-http", "streamable_http", "streamableHttp", "sse"]
"""The spellings that clients' configurations have."""

_OF_STDIO: Final = ("args", "env", "cwd", "sandbox")
_OF_HTTP: Final = ("headers", "auth", "allow_private", "tls", "forward_headers")


class Upstream(Model):
    """Another MCP server, whose tools, resources and prompts are offered here: a `command`, or a `url`."""

    command: Annotated[
        Annotated[list[Text], Field(min_length=1), ShortForm(_program_alone, SCALAR_SCHEMA)] | None, Use.SECRET
    ] = None
    """A program that speaks MCP over its standard streams; with its arguments, if this is a list."""
    args: Annotated[list[Text], Use.SECRET] = []
    """Its arguments."""
    env: Annotated[dict[str, Text], Use.SECRET] = {}
    """Its variables, beside PATH, HOME, LANG, LC_*, TZ and TMPDIR."""
    cwd: Annotated[str, PlainValidator(lambda value: str(keep_scalar(value)))] | None = None
    """Its working directory, relative to this file. Default the directory of this file."""
    sandbox: (
        Annotated[Sandbox, ShortForm(_sandboxed, {"type": "object", "properties": {key: {} for key in _SANDBOX_KEYS}})]
        | None
    ) = None
    """Confinement of the program; `read` and `write` are short for `readable` and `writable`."""
    url: Annotated[Text | None, Use.SECRET] = None
    """The MCP endpoint of a server over HTTP; relative to the `base_url` of a `connection`."""
    headers: Annotated[dict[str, Text], Use.SECRET] = {}
    """Header fields of each request."""
    type: Transport | None = None
    """The transport: `stdio`, `http` (Streamable HTTP, also spelt streamable-http, streamable_http, streamableHttp) or
    `sse`. Without it, it is found out."""
    transport: Transport | None = None
    """Another name for `type`."""
    connection: str | None = None
    """Name of one of `connections`, whose base URL, headers, TLS and `auth` hold here."""
    auth: Annotated[OutboundAuth | None, Use.SECRET] = None
    """How to sign in to it. Its own RFC 9728 metadata name the authorization server where no `issuer` is given."""
    allow_private: AllowPrivate | None = None
    """Addresses that are otherwise refused: hosts and CIDR ranges; true is all, a cloud's metadata service too."""
    tls: Annotated[ClientTls | None, Use.SECRET] = None
    """Certificates."""
    forward_headers: Annotated[list[Annotated[str, AfterValidator(_may_be_forwarded)]], DISTINCT] = []
    """Header fields of the caller's request to pass on. Never those between the caller and this server."""
    prefix: Annotated[NamePrefix | None, Use.NAME] = None
    """Put before the names of tools and prompts. Default `<name>_`; may be empty."""
    uri_prefix: Annotated[str | None, Use.NAME] = None
    """Put before all its URIs: `docs+` makes `file:///a` `docs+file:///a`."""
    tools: Annotated[ToolSelection, _ALL_OR_NONE] = defaults_of(ToolSelection)
    """The tools that are offered; false for none."""
    resources: Annotated[ResourceSelection, _ALL_OR_NONE] = defaults_of(ResourceSelection)
    """The resources and resource templates that are offered; false for none."""
    prompts: Annotated[PromptSelection, _ALL_OR_NONE] = defaults_of(PromptSelection)
    """The prompts that are offered; false for none."""
    instructions: Flag = True
    """Whether its `instructions` follow those of `server`, under its name, where one of its primitives is on offer; cut
    to 4 KiB."""
    session: Literal["per_client", "shared"] | None = None
    """Whether each client has its own session, for stdio its own process. Default `per_client`, but `shared` for HTTP
    servers without sessions."""
    max_sessions: PositiveCount = 100
    """The most sessions at a time with `per_client`; the idle one that was used least recently ends first."""
    start: Literal["lazy", "eager"] = "lazy"
    """`eager` keeps it running; `lazy` starts it at the first call."""
    idle: PositiveDuration = timedelta(minutes=10)
    """How long a lazy one runs without a call."""
    era: Literal["legacy", "modern"] | None = None
    """`legacy` begins with `initialize`, `modern` (2026-07-28) does not. Without it, it is found out."""
    timeout: PositiveDuration | None = None
    """How long a call may take. Default 60s."""
    connect_timeout: PositiveDuration = timedelta(seconds=30)
    """How long one attempt to connect may take: the start of a process and the handshake together. Then, how long the
    lists may take. Waiting for a turn to start does not count."""
    concurrency: PositiveCount | None = None
    """How many calls may run at once, on the whole upstream. Default 16."""
    queue: Count | None = None
    """How many more calls may wait for their turn; beyond that they are refused. Default 64."""
    rate_limit: WrittenRateLimit | None = None
    """How often each of its primitives may be called, such as 10/minute by each caller."""
    access: Access | None = None
    """Who may use them; without this everybody."""
    tags: Annotated[list[str], DISTINCT, Use.SHOWN] = []
    """Words for grouping and rules."""
    requires: Requires = defaults_of(Requires)
    """Requirements that must be met for them to be offered."""
    required: Flag = False
    """Whether the daemon is not ready while this upstream cannot be reached."""
    health: Duration = timedelta(seconds=30)
    """How often an eager one is asked whether it is there while nothing else was said; 0 is never."""
    validate_: Flag = Field(default=True, alias="validate")
    """Whether arguments are held to the tools' `inputSchema` here already."""
    sampling: Flag = True
    """Whether it may ask our clients' models."""
    elicitation: Flag = True
    """Whether it may ask our clients' users."""
    roots: Flag = True
    """Whether it may ask for our clients' roots."""
    logging: Flag = True
    """Whether its log messages go to our clients."""

    @property
    def kind(self) -> Literal["stdio", "http", "sse"] | None:
        """The transport as the file says it; None where it is to be found out."""
        said = self.type or self.transport
        if said is None:
            return "stdio" if self.command is not None else None
        return said if said in {"stdio", "sse"} else "http"

    @property
    def argv(self) -> tuple[str, ...]:
        return (*(self.command or ()), *self.args)

    def below(self, directory: Path) -> Self:
        """The same with absolute paths: those of the entry are relative to the directory of its file."""
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
    def _is_consistent(self) -> Self:
        not_together(self, "type", "transport")
        # With a connection alone, its `base_url` is the server.
        if self.connection is None or self.command is not None:
            exactly_one(self, of=("command", "url"), what="a server")
        if self.connection is not None and self.command is not None:
            raise misplaced("connection", goes_with="url")
        is_stdio = self.command is not None
        for key in _OF_HTTP if is_stdio else _OF_STDIO:
            if getattr(self, key):  # an empty one stands in many a client's file, and means nothing
                raise misplaced(key, goes_with="url" if is_stdio else "command")
        said = self.type or self.transport
        if said is not None and (said == "stdio") is not is_stdio:
            raise misplaced("type" if self.type else "transport", goes_with="command" if said == "stdio" else "url")
        return self


def _below(auth: OutboundAuth, directory: Path) -> OutboundAuth:
    """The same with an absolute path to the private key, if it is in a file."""
    name = "client_credentials" if auth.client_credentials is not None else "token_exchange"
    client = getattr(auth, name)
    # A key that is written here, or was filled in, is no path.
    if client is None or client.private_key is None or PEM in client.private_key:
        return auth
    return auth.model_copy(
        update={name: client.model_copy(update={"private_key": str(directory / client.private_key)})}
    )
