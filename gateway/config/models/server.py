"""Sections that stand in the main file alone: `server`, `listen`, `limits`."""

from datetime import timedelta
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, model_validator
from pydantic_core import PydanticCustomError

from gateway.config.models.address import UNIX, Address, parse_network
from gateway.config.models.auth import ScopeToken
from gateway.config.models.base import (
    Count,
    Flag,
    Model,
    NotEmpty,
    PositiveCount,
    ShortForm,
    defaults_of,
    matching,
    typed_interpolation,
    value_for,
)
from gateway.config.models.definition_keys import Icon
from gateway.config.models.field_use import Use
from gateway.config.models.quantities import Duration, PositiveDuration, PositiveSize, Rate, WrittenRateLimit
from gateway.config.models.tasks import TaskLimits
from gateway.json_types import Json


class Server(Model):
    """The server's introduction to clients, and its lists."""

    name: Annotated[NotEmpty, Use.DESCRIPTION] = "mcp-gateway"
    """What clients call it."""
    title: Annotated[str | None, Use.DESCRIPTION] = None
    """A name for people."""
    version: str | None = None
    """The version that clients are told; otherwise the daemon's own."""
    description: Annotated[str | None, Use.DESCRIPTION] = None
    """What it is for."""
    instructions: Annotated[str | None, Use.DESCRIPTION] = None
    """What a model should know before it uses anything of this server."""
    icons: list[Icon] | None = None
    """Pictures that clients may show."""
    website_url: Annotated[str, matching(r"https?://[^\s/?#]\S*", "a URL such as https://example.com")] | None = None
    """Where people can read more."""
    lock: Literal["report", "enforce"] = "report"
    """Treatment of a definition that differs from `mcp-gateway.lock`, where there is that file: it is reported, or with
    `enforce` not served, and its former version in its place. `mcp-gateway lock` writes the file."""
    page_size: PositiveCount = 200
    """Entries in one page of a list."""
    cache_ttl: Duration = timedelta(seconds=5)
    """How long clients may keep a list (a hint; a `list_changed` overrides it)."""


class Tls(Model):
    """TLS of the listener. Paths are relative to this file."""

    cert: str
    """Certificate and chain, PEM."""
    key: str
    """Private key, PEM."""


def _address(value: str) -> str:
    try:
        Address.parse(value)
    except ValueError as error:
        raise PydanticCustomError("address", "{reason}", {"reason": str(error)}) from None
    return value


def _network(value: str) -> str:
    try:
        if value != UNIX:
            parse_network(value)
    except ValueError as error:
        raise PydanticCustomError("network", "{reason}", {"reason": str(error)}) from None
    return value


_RESERVED: Final = ("/-", "/metrics")
_SSE: Final = ("/sse", "/messages")


def _no_reserved_path(value: str) -> str:
    if _is_below(_RESERVED, value):
        raise PydanticCustomError("reserved_path", "/-/… and /metrics are the daemon's own")
    return value


def _is_below(paths: tuple[str, ...], value: str) -> bool:
    # With a slash at the end of both: `/metrics2` is not below `/metrics`.
    return any(f"{value}/".startswith(f"{path}/") for path in paths)


def _share(one: Address, other: Address) -> bool:
    """Whether two addresses exclude each other: every interface includes each. Port 0 is another each time."""
    is_same_host = one.host == other.host or one.is_wildcard or other.is_wildcard
    return is_same_host and one.port == other.port != 0


_PORT: Final = r"(:([0-5]?[0-9]{1,4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?"
"""65535 at the most."""
_AUTHORITY: Final = rf"(\[[0-9A-Fa-f:.]+\]|[^\s/:?#@\[\]]+){_PORT}"
_Host = Annotated[
    str,
    matching(
        rf"\*|(\*\.)?[^\s/:@*\[\]]+{_PORT}|\[[0-9A-Fa-f:.]+\]{_PORT}",
        "a host as clients name it: tools.example.com, tools.example.com:8443, *.example.com, or * for any",
    ),
]
_Origin = Annotated[
    str,
    matching(
        rf"\*|null|[A-Za-z][A-Za-z0-9+.-]*://{_AUTHORITY}/?",
        "an origin such as https://app.example.com, or * for any",
    ),
]


_PublicUrl = Annotated[
    str,
    # No user, for whom it would be published, and no path that a client or a proxy takes for another one.
    matching(rf"https?://{_AUTHORITY}(/(?!\.\.?(/|$))[^/?#\s]+)*/?", "a URL such as https://tools.example.com/ops"),
]


class ConsolePage(Model):
    """The console: a page at `/-/console/` that shows what the daemon does and calls its tools."""

    scopes: list[ScopeToken] = ["console"]
    """Scopes that a caller needs, all of them, where there is `auth`. They open everything that the page shows."""


def _switch(value: Json) -> Json:
    value = typed_interpolation(value)
    return {True: {}, False: None}[value] if isinstance(value, bool) else value


WrittenConsole = Annotated[ConsolePage | None, ShortForm(_switch, {"type": "boolean"})]
"""`true` turns it on with its defaults; `false` is as if the key were not there."""


class Listen(Model):
    """The listener: addresses, paths, proxies, limits of connections. Changing it needs a restart."""

    http: Annotated[str, AfterValidator(_address)] = "127.0.0.1:8000"
    """host:port; port 0 takes a free one."""
    path: Annotated[str, matching(r"/[^?#\s]*", "a path such as /mcp"), AfterValidator(_no_reserved_path)] = "/mcp"
    """The MCP endpoint; it also answers with a trailing slash."""
    sse: Flag = True
    """Offer HTTP+SSE of 2024-11-05 at /sse and /messages."""
    public_url: _PublicUrl | None = None
    """The prefix under which a reverse proxy mounts the whole daemon."""
    trusted_proxies: list[Annotated[str, AfterValidator(_network)]] = []
    """Addresses and CIDR ranges whose forwarded headers are believed; `unix:` is any peer of a Unix socket."""
    allowed_hosts: list[_Host] | None = None
    """Values of Host that are answered. Default: loopback, and `public_url`'s."""
    allowed_origins: list[_Origin] | None = None
    """Origins that are answered, with CORS. Default: any port of loopback, and `public_url`'s."""
    max_body: PositiveSize = 4 * 2**20
    """The largest message."""
    keepalive: PositiveDuration = timedelta(seconds=15)
    """How often an open stream gets a comment, so that proxies keep it."""
    session_ttl: PositiveDuration = timedelta(hours=1)
    """How long a session may be idle."""
    receive_timeout: PositiveDuration = timedelta(seconds=30)
    """How long a request's head may take to arrive, the first on a connection from its beginning, and any body."""
    idle_timeout: PositiveDuration = timedelta(minutes=11)
    """How long a connection is kept from one answer to the next request's head; longer than proxies keep theirs."""
    tls: Annotated[Tls | None, Use.SECRET] = None
    """Serve HTTPS. A renewed certificate is shown without a restart."""
    admin: Annotated[str, AfterValidator(_address)] | None = None
    """host:port for /-/… and /metrics, which are then not on the main listener."""
    console: WrittenConsole = None
    """Serve the console, a page for the browser, at /-/console/ beside the other paths /-/…. Without `auth` a link with
    a token is logged at the start; with `auth` it takes a key or token that holds the scope `console`."""

    @model_validator(mode="after")
    def _listens_apart(self) -> Self:
        if self.admin is not None and _share(Address.parse(self.http), Address.parse(self.admin)):
            message = "`http` listens there already; choose another port"
            raise PydanticCustomError("address_clash", message, {"culprit": "admin"})
        return self

    @model_validator(mode="after")
    def _has_paths_of_their_own(self) -> Self:
        if self.sse and _is_below(_SSE, self.path):
            message = "`path` is one of HTTP+SSE (/sse, /messages); choose another, or say `sse: false`"
            raise PydanticCustomError("path_clash", message, {"culprit": "path"})
        return self


class SamplingLimits(Model):
    """Limits of what tools may ask of the client's model."""

    per_call: PositiveCount | None = None
    """Requests that one call may make."""
    rate: Rate | None = None
    """Requests of one caller's tools, such as 10/minute."""
    max_tokens: PositiveCount | None = None
    """Tokens that one request may ask for; a larger wish is cut down to it."""


class Quota(Model):
    """The most at once, for each caller and in all."""

    per_caller: PositiveCount | None = None
    """Of one caller."""
    in_all: PositiveCount | None = None
    """Of all callers together."""


class QueueLengths(Model):
    """The most that wait, for each caller and in all; 0: nobody does."""

    per_caller: Count | None = None
    """Calls of one caller."""
    in_all: Count | None = None
    """Calls of all callers together."""


class SizeShares(Model):
    """The most bytes at once, for each caller and in all."""

    per_caller: PositiveSize = 64 * 2**20
    """Of one caller. Default: sixteen times what `listen.max_body` takes for a large message."""
    in_all: PositiveSize = 256 * 2**20
    """Of all callers together. Default: four callers who use their share up leave the others waiting."""


_COUNT: Final = {"type": "integer", "minimum": 1}

WrittenQuota = Annotated[Quota, value_for("per_caller", _COUNT)]
"""A number is what one caller may have."""
WrittenTotal = Annotated[Quota, value_for("in_all", _COUNT)]
"""A number is what all callers may have together."""


class Limits(Model):
    """Limits of what the daemon serves."""

    rate_limit: WrittenRateLimit | None = None
    """How often calls may begin, such as 100/minute by each caller. A call is a `tools/call`, `resources/read`,
    `prompts/get` or `completion/complete`; each of the lists may be begun as often, and counts by itself. A caller is
    who authenticated, else the client's address (of IPv6 its /64 network). A retry that brings the user's answers
    counts again."""
    concurrency: WrittenQuota | None = None
    """How many calls may run at once, such as 8 of each caller. Those that wait for the user's answer do not count."""
    queue: Annotated[QueueLengths, value_for("per_caller", {"type": "integer", "minimum": 0})] | None = None
    """How many calls may wait for a place of `concurrency`; beyond that they are refused, with 0 at once. Default 64 of
    each caller, 1024 in all."""
    sampling: SamplingLimits | None = None
    """Limits of what tools may ask of the client's model."""
    sessions: WrittenTotal = defaults_of(Quota, in_all=10_000)
    """Sessions at once. Unless `per_caller` says otherwise, one caller may have half of them, or 100."""
    streams: WrittenTotal = defaults_of(Quota, in_all=10_000)
    """Open streams at once. Unless `per_caller` says otherwise, one caller may have half of them, or 100."""
    connections: WrittenTotal = defaults_of(Quota)
    """Connections at once of each HTTP listener. Unless `per_caller` says otherwise, one address may have half of them;
    loopback, and any where `trusted_proxies` are named, may have all.
    Default: three quarters of the descriptors that the process has free when it starts (`ulimit -n`), and 24 fewer than
    those at the least, which are left to children, reloads and backends."""
    unread: SizeShares = defaults_of(SizeShares)
    """Bytes of answers that wait for clients to read them. Over HTTP, up to 64 KiB on a connection are not counted.
    Answers beyond the limit wait for room for up to 30 seconds, and at most as many bytes again may wait. After that
    the caller gets a 503, or its stream is closed. On stdio, answers over `per_caller` are replaced by errors when the
    client has read nothing for 2 seconds. A single answer larger than the limit is sent when nothing else waits."""
    tasks: TaskLimits = defaults_of(TaskLimits)
    """Limits of tasks: calls that outlive their request."""
    threads: PositiveCount = 32
    """Calls of synchronous Python functions that may run at once."""
    request_depth: PositiveCount = 64
    """How deep a message's JSON may nest."""
