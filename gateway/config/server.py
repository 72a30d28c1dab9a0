"""The sections that stand in the main file alone: `server`, `listen`, `auth`, `limits`."""

from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, Field

from gateway.config.base import Count, Duration, Flag, Model, PositiveCount, Size, one_or_many, unsupported
from gateway.config.definitions import Icon


class Server(Model):
    """How the server introduces itself."""

    name: str = "mcp-gateway"
    title: str | None = None
    version: str | None = None
    description: str | None = None
    instructions: str | None = None
    icons: list[Icon] | None = None
    website_url: str | None = None
    page_size: PositiveCount = 200
    cache_ttl: Duration = timedelta(seconds=5)
    """How long clients may keep a list (a hint; a `list_changed` overrides it)."""


class Tls(Model):
    cert: str
    key: str


class Listen(Model):
    http: str = "127.0.0.1:8000"
    """host:port; port 0 takes a free one."""
    path: Annotated[str, Field(pattern=r"^/[^?#\s]*$")] = "/mcp"
    sse: Flag = True
    """Offer HTTP+SSE of 2024-11-05 at /sse and /messages."""
    public_url: Annotated[str, Field(pattern=r"^https?://[^/?#\s]+(/[^?#\s]*)?$")] | None = None
    """The prefix under which a reverse proxy mounts the whole daemon."""
    trusted_proxies: Annotated[list[str], BeforeValidator(unsupported)] = []
    allowed_hosts: list[str] | None = None
    allowed_origins: list[str] | None = None
    max_body: Size = 4 * 2**20
    keepalive: Duration = timedelta(seconds=15)
    session_ttl: Duration = timedelta(hours=1)
    tls: Annotated[Tls | None, BeforeValidator(unsupported)] = None
    admin: Annotated[str | None, BeforeValidator(unsupported)] = None
    """host:port for /-/… and /metrics alone."""


class ApiKey(Model):
    secret: Annotated[list[str], BeforeValidator(one_or_many)] = []
    sha256: Annotated[list[str], BeforeValidator(one_or_many)] = []
    scopes: list[str] = []


class OAuth(Model):
    issuer: str
    audience: str | None = None
    jwks_url: str | None = None
    required_scopes: list[str] = []
    scopes_supported: list[str] = []


class Auth(Model):
    api_keys: dict[str, ApiKey] = {}
    oauth: OAuth | None = None


class SamplingLimits(Model):
    per_call: PositiveCount | None = None
    rate: str | None = None
    max_tokens: PositiveCount | None = None


class Limits(Model):
    rate_limit: Annotated[str | None, BeforeValidator(unsupported)] = None
    concurrency: Annotated[Count | None, BeforeValidator(unsupported)] = None
    sampling: Annotated[SamplingLimits | None, BeforeValidator(unsupported)] = None
    sessions: PositiveCount = 10_000
    streams: PositiveCount = 10_000
    threads: PositiveCount = 32
    """Calls of synchronous Python functions that may run at once."""
    request_depth: PositiveCount = 64
    """How deep a message's JSON may nest."""
