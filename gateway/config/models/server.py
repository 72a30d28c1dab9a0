"""Sections of the main file: `server`, `listen`, `limits`."""

from datetime import timedelta
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, model_validator
from pydantic_core import PydanticCustomError

from gateway.config.models.address import UNIX, Address, parse_network
from gateway.config.models.base import (
    Count,
    Flag,
    Model,
    NotEmpty,
    PositiveCount,
    ScopeToken,
    ShortForm,
    Use,
    defaults_of,
    matching,
    typed_interpolation,
    value_for,
)
from gateway.config.models.definition_keys import Icon
from gateway.config.models.quantities import Duration, PositiveDuration, PositiveSize, Rate, WrittenRateLimit
from gateway.json_types import Json


class Server(Model):
    """Information about the server for clients, and settings of its lists."""

    name: Annotated[NotEmpty, Use.DESCRIPTION] = "mcp-gateway"
    """Name of the server."""
    title: Annotated[str | None, Use.DESCRIPTION] = None
    """Display name."""
    version: str | None = None
    """Version reported to clients. Default: the version of the daemon."""
    description: Annotated[str | None, Use.DESCRIPTION] = None
    """Description of the server."""
    instructions: Annotated[str | None, Use.DESCRIPTION] = None
    """Instructions that a model should know before it uses this server."""
    icons: list[Icon] | None = None
    """Icons that clients can show."""
    website_url: Annotated[str, matching(r"https?://[^\s/?#]\S*", "a URL such as https://example.com")] | None = None
    """URL of a page with more information."""
    lock: Literal["report", "enforce"] = "report"
    """What to do if a definition differs from `mcp-gateway.lock`: report it, or with `enforce` also not serve it. For
    upstreams, `enforce` serves the locked version. `mcp-gateway lock` writes that file."""
    page_size: PositiveCount = 200
    """Number of entries on one page of a list."""
    cache_ttl: Duration = timedelta(seconds=5)
    """How long clients can cache a list. This is a hint, and `list_changed` overrides it."""


class Tls(Model):
    """TLS settings of the listener. Paths are relative to this file."""

    cert: str
    """Certificate chain, PEM."""
    key: str
    """Private key, PEM."""


def _address(value: str) -> str:
    Address.parse(value)
    return value


def _network(value: str) -> str:
    if value != UNIX:
        parse_network(value)
    return value


_RESERVED: Final = ("/-", "/metrics")
_SSE: Final = ("/sse", "/messages")


def _no_reserved_path(value: str) -> str:
    if _is_below(_RESERVED, value):
        raise PydanticCustomError("reserved_path", "/-/… and /metrics are reserved for the daemon")
    return value


def _is_below(paths: tuple[str, ...], value: str) -> bool:
    # The slash prevents `/metrics2` from matching `/metrics`.
    return any(f"{value}/".startswith(f"{path}/") for path in paths)


def _conflict(one: Address, other: Address) -> bool:
    """Whether two listeners would use the same port. A wildcard address includes every host. Port 0 is always free."""
    is_same_host = one.host == other.host or one.is_wildcard or other.is_wildcard
    return is_same_host and one.port == other.port != 0


_PORT: Final = r"(:([0-5]?[0-9]{1,4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?"
"""A port up to 65535."""
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
    # The URL is public, so it must not contain a user. Clients and proxies rewrite paths with `.` and `..`.
    matching(rf"https?://{_AUTHORITY}(/(?!\.\.?(/|$))[^/?#\s]+)*/?", "a URL such as https://tools.example.com/ops"),
]


class ConsolePage(Model):
    """The console at `/-/console/`: a web page that shows the daemon's activity and can call its tools."""

    scopes: list[ScopeToken] = ["console"]
    """Scopes that a caller needs if `auth` is configured. A caller with all of them can see everything on the page."""


def _switch(value: Json) -> Json:
    value = typed_interpolation(value)
    return {True: {}, False: None}[value] if isinstance(value, bool) else value


WrittenConsole = Annotated[ConsolePage | None, ShortForm(_switch, {"type": "boolean"})]
"""`true` enables the console with default settings. `false` has the same effect as omitting the key."""


class Listen(Model):
    """The listener: addresses, paths, proxies and connection limits. Changes require a restart."""

    http: Annotated[str, AfterValidator(_address)] = "127.0.0.1:8000"
    """Address as host:port. Port 0 selects a free port."""
    path: Annotated[str, matching(r"/[^?#\s]*", "a path such as /mcp"), AfterValidator(_no_reserved_path)] = "/mcp"
    """Path of the MCP endpoint, which also accepts a trailing slash."""
    sse: Flag = True
    """Enable the HTTP+SSE transport (2024-11-05) at /sse and /messages."""
    public_url: _PublicUrl | None = None
    """URL prefix at which a reverse proxy serves the daemon."""
    trusted_proxies: list[Annotated[str, AfterValidator(_network)]] = []
    """Addresses and CIDR ranges whose forwarded headers are trusted. `unix:` means any peer of a Unix socket."""
    allowed_hosts: list[_Host] | None = None
    """Accepted values of `Host`. Default: loopback, and the host of `public_url`."""
    allowed_origins: list[_Origin] | None = None
    """Accepted values of `Origin`, also for CORS. Default: loopback with any port, and the origin of `public_url`."""
    max_body: PositiveSize = 4 * 2**20
    """Maximum size of a message."""
    keepalive: PositiveDuration = timedelta(seconds=15)
    """Interval of comments on open streams, so that proxies do not close them."""
    session_ttl: PositiveDuration = timedelta(hours=1)
    """How long a session can be idle."""
    receive_timeout: PositiveDuration = timedelta(seconds=30)
    """Time limit for the headers of a request, and then for its body. The first request starts with the connection."""
    idle_timeout: PositiveDuration = timedelta(minutes=11)
    """How long a connection stays open between requests. Use a longer time than your proxy does."""
    tls: Annotated[Tls | None, Use.SECRET] = None
    """Serve HTTPS. Renewed certificates are loaded without a restart."""
    access_log: Literal["failed", "all"] | None = None
    """Log failed calls, or all calls, at level info. By default, only timeouts, responses with status 5xx and invalid
    arguments are logged."""
    admin: Annotated[str, AfterValidator(_address)] | None = None
    """Separate host:port for /-/… and /metrics, which are then not available on the main listener."""
    console: WrittenConsole = None
    """Serve the console, a web page, at /-/console/ with the other paths under /-/. Without `auth`, the daemon logs a
    link with a token at startup. With `auth`, you need a key or token with the scope `console`."""

    @model_validator(mode="after")
    def _check_admin(self) -> Self:
        if self.admin is not None and _conflict(Address.parse(self.http), Address.parse(self.admin)):
            message = "`http` already uses this address. Choose another port"
            raise PydanticCustomError("address_clash", message, {"culprit": "admin"})
        return self

    @model_validator(mode="after")
    def _check_paths(self) -> Self:
        if self.sse and _is_below(_SSE, self.path):
            message = "`path` conflicts with HTTP+SSE (/sse, /messages). Choose another, or set `sse: false`"
            raise PydanticCustomError("path_clash", message, {"culprit": "path"})
        return self


class SamplingLimits(Model):
    """Limits on the requests that tools send to the client's model."""

    per_call: PositiveCount | None = None
    """Requests per call."""
    rate: Rate | None = None
    """Rate of requests by the tools of one caller, such as 10/minute."""
    max_tokens: PositiveCount | None = None
    """Tokens per request. Higher requests are reduced to this number."""


class Quota(Model):
    """Maximum number of concurrent calls, sessions, streams or connections, per caller and in total."""

    per_caller: PositiveCount | None = None
    """For one caller."""
    in_all: PositiveCount | None = None
    """For all callers together."""


class QueueLengths(Model):
    """Maximum number of waiting calls, per caller and in total. With 0, calls do not wait."""

    per_caller: Count = 64
    """Calls of one caller."""
    in_all: Count = 1024
    """Calls of all callers together."""


class SizeShares(Model):
    """Maximum number of bytes that wait to be read by clients, per caller and in total."""

    per_caller: PositiveSize = 64 * 2**20
    """For one caller. The default is sixteen times the default of `listen.max_body`."""
    in_all: PositiveSize = 256 * 2**20
    """For all callers together. The default is four times the default of `per_caller`."""


_COUNT: Final = {"type": "integer", "minimum": 1}

WrittenQuota = Annotated[Quota, value_for("per_caller", _COUNT)]
"""A plain number is the limit per caller."""
WrittenQueue = Annotated[QueueLengths, value_for("per_caller", {"type": "integer", "minimum": 0})]
WrittenTotal = Annotated[Quota, value_for("in_all", _COUNT)]
"""A plain number is the limit for all callers together."""


class TaskLimits(Model):
    """Limits of tasks. Tasks that have ended do not count."""

    per_caller: PositiveCount | None = None
    """Tasks of one caller. Default: half of `total`."""
    total: PositiveCount = 10_000
    """Tasks of all callers together."""
    ttl: PositiveDuration | None = None
    """Maximum time that a task is kept. Longer times in tools are reduced to this time."""


class Limits(Model):
    """Limits of the daemon."""

    rate_limit: WrittenRateLimit | None = None
    """Rate limits of calls, such as 100/minute per caller. A call is a `tools/call`, `resources/read`, `prompts/get` or
    `completion/complete`. Each kind of list has its own counter with the same limit. A caller is the authenticated
    identity, or otherwise the client's address (for IPv6, its /64 network). A retry with the user's answers counts."""
    concurrency: WrittenQuota = defaults_of(Quota)
    """Maximum number of concurrent calls, such as 8 per caller. Calls that wait for the user's answer do not count."""
    queue: WrittenQueue = defaults_of(QueueLengths)
    """Number of calls that can wait for `concurrency`. Further calls are rejected; with 0, immediately. Default 64 per
    caller, 1024 in total."""
    sampling: SamplingLimits = defaults_of(SamplingLimits)
    """Limits on the requests that tools send to the client's model."""
    sessions: WrittenTotal = defaults_of(Quota, in_all=10_000)
    """Concurrent sessions. Default of `per_caller`: half of `in_all`, or 100 if that is more, up to `in_all`."""
    streams: WrittenTotal = defaults_of(Quota, in_all=10_000)
    """Concurrent open streams. Default of `per_caller`: half of `in_all`, or 100 if that is more, up to `in_all`."""
    connections: WrittenTotal = defaults_of(Quota)
    """Concurrent connections of each HTTP listener. Default of `per_caller`: half of `in_all` for each address, or all
    of `in_all` for loopback addresses, or if `trusted_proxies` is set. Default of `in_all`: three quarters of the file
    descriptors (`ulimit -n`).
    """
    unread: SizeShares = defaults_of(SizeShares)
    """Bytes of responses that clients have not read yet. Over HTTP, up to 64 KiB per connection are not counted.
    Responses beyond the limit wait for up to 30 seconds, and at most the same number of bytes can wait. If the limit is
    still exceeded, the caller receives a 503, or the caller's stream is closed. On stdio, responses over `per_caller`
    become errors if the client reads nothing for 2 seconds. A response larger than the limit is sent when no other
    response is waiting."""
    tasks: TaskLimits = defaults_of(TaskLimits)
    """Limits of tasks: calls that outlive their request."""
    threads: PositiveCount = 32
    """Maximum number of concurrent calls of synchronous Python functions."""
    request_depth: PositiveCount = 64
    """Maximum nesting depth of the JSON in a message."""
