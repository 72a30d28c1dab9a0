"""Models of `openapi:`: OpenAPI documents whose operations are offered as tools and resource templates."""

from datetime import timedelta
from typing import Annotated, Literal

from gateway.config.models.backends import AllowPrivate
from gateway.config.models.base import (
    DISTINCT,
    ONE_OR_MANY,
    Flag,
    Model,
    NotEmpty,
    PositiveCount,
    Use,
    defaults_of,
)
from gateway.config.models.definition_keys import Access, NamePrefix, Requires
from gateway.config.models.definitions import OperationOverride
from gateway.config.models.quantities import PositiveDuration, WrittenRateLimit

HttpMethod = Literal["get", "head", "post", "put", "patch", "delete", "options"]
OperationPattern = NotEmpty
"""An operationId, or a method and a path such as `GET /items/{id}`. Both can be globs. `*` as the method matches any
method, and `*` as the whole pattern matches any operation."""


class OperationFilter(Model):
    """Selects operations. An operation must match every key, and at least one value of each key."""

    tags: Annotated[list[str], DISTINCT, ONE_OR_MANY] = []
    """Tags in the document."""
    operations: Annotated[list[OperationPattern], DISTINCT, ONE_OR_MANY] = []
    """Each is an operationId, or a method and a path such as `GET /items/{id}`. Both can be globs: `* /items/*`."""
    methods: Annotated[list[HttpMethod], DISTINCT, ONE_OR_MANY] = []
    """HTTP methods."""
    deprecated: Flag | None = None
    """True selects only deprecated operations, false only operations that are not deprecated."""

    @property
    def is_empty(self) -> bool:
        return not (self.tags or self.operations or self.methods) and self.deprecated is None


class OperationResources(Model):
    """Operations that become resource templates instead of tools."""

    operations: Annotated[list[OperationPattern], DISTINCT, ONE_OR_MANY] = []
    """Patterns as in `include`. Only GET operations are allowed."""


class OpenApi(Model):
    """An OpenAPI document (3.x or Swagger 2.0, JSON or YAML). Its operations are offered as tools."""

    document: NotEmpty
    """Path of the document, relative to this file, or its https: or http: URL."""
    connection: str | None = None
    """Name of an entry in `connections`. Its base URL, header fields, TLS and `auth` apply to the requests. Default:
    the document's first server."""
    prefix: Annotated[NamePrefix | None, Use.NAME] = None
    """Prefix for the names of the tools. Default `<name>_`. Can be empty."""
    include: OperationFilter = defaults_of(OperationFilter)
    """Operations to offer. Default `methods: [get, head]`."""
    exclude: OperationFilter = defaults_of(OperationFilter)
    """Operations to omit even if `include` selects them. An operation must match every key."""
    resources: OperationResources = defaults_of(OperationResources)
    """Operations that become resource templates instead of tools."""
    override: dict[str, OperationOverride] = {}
    """Changes to operations, by operationId or by method and path."""
    refresh: PositiveDuration = timedelta(minutes=10)
    """How often a document with a URL is fetched again."""
    allow_private: AllowPrivate | None = None
    """Private addresses to allow for the document's URL and its servers. Default: the setting of the connection."""
    ignore_security: Flag = False
    """Offer operations without the credentials that the document requires."""
    access: Access | None = None
    """Scopes that callers of the tools need. Default: none."""
    tags: Annotated[list[str], DISTINCT, Use.SHOWN] = []
    """Tags for grouping and rules, in addition to the document's own tags."""
    requires: Requires = defaults_of(Requires)
    """Requirements that must be met before the tools are offered."""
    timeout: PositiveDuration | None = None
    """Time limit of a call. Default 60s."""
    concurrency: PositiveCount | None = None
    """Maximum number of concurrent calls of each tool. Default 16."""
    rate_limit: WrittenRateLimit | None = None
    """Rate limit of each tool, such as 10/minute per caller."""

    @property
    def is_remote(self) -> bool:
        # RFC 3986 §3.1: schemes are case-insensitive.
        return self.document.lower().startswith(("https://", "http://"))
