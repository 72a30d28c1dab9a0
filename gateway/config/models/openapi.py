"""The models of `openapi:`: OpenAPI documents, whose operations are offered as tools and resource templates."""

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
    defaults_of,
)
from gateway.config.models.definition_keys import Access, NamePrefix, Requires
from gateway.config.models.field_use import Use
from gateway.config.models.overrides import OperationOverride
from gateway.config.models.quantities import PositiveDuration, WrittenRateLimit

HttpMethod = Literal["get", "head", "post", "put", "patch", "delete", "options"]
OperationPattern = NotEmpty
"""An operationId, or a method and a path such as `GET /items/{id}`; either may be a glob. `*` as the method is any, and
alone every operation."""


class OperationFilter(Model):
    """A choice of operations. Different keys narrow it, values of one key add to it."""

    tags: Annotated[list[str], DISTINCT, ONE_OR_MANY] = []
    """Tags of the document."""
    operations: Annotated[list[OperationPattern], DISTINCT, ONE_OR_MANY] = []
    """Each an operationId, or a method and a path such as `GET /items/{id}`; both may be globs: `* /items/*`."""
    methods: Annotated[list[HttpMethod], DISTINCT, ONE_OR_MANY] = []
    """Methods."""
    deprecated: Flag | None = None
    """True is all that are deprecated, false all that are not."""

    @property
    def is_empty(self) -> bool:
        return not (self.tags or self.operations or self.methods) and self.deprecated is None


class OperationResources(Model):
    """The operations that become resource templates instead of tools."""

    operations: Annotated[list[OperationPattern], DISTINCT, ONE_OR_MANY] = []
    """As in `include`; GET alone."""


class OpenApi(Model):
    """An OpenAPI document (3.x or Swagger 2.0, JSON or YAML), whose operations are offered here as tools."""

    document: NotEmpty
    """Its path, relative to this file, or its https: or http: URL."""
    connection: str | None = None
    """Name of one of `connections`, whose base URL, header fields, TLS and `auth` hold for its requests. Default the
    document's first server."""
    prefix: Annotated[NamePrefix | None, Use.NAME] = None
    """Put before the names of its tools. Default `<name>_`; may be empty."""
    include: OperationFilter = defaults_of(OperationFilter)
    """The operations that are offered. Default `methods: [get, head]`."""
    exclude: OperationFilter = defaults_of(OperationFilter)
    """The operations that are not, though `include` has them: those that fit every key."""
    resources: OperationResources = defaults_of(OperationResources)
    """The operations that become resource templates instead."""
    override: dict[str, OperationOverride] = {}
    """Changes, by operationId, or by method and path."""
    refresh: PositiveDuration = timedelta(minutes=10)
    """How often a document with a URL is looked at again."""
    allow_private: AllowPrivate | None = None
    """Addresses that are otherwise refused, for the document's URL and for its servers. Default the connection's."""
    ignore_security: Flag = False
    """Offer operations without the credentials that the document says they need."""
    access: Access | None = None
    """Who may use its tools; without this everybody."""
    tags: Annotated[list[str], DISTINCT, Use.SHOWN] = []
    """Words for grouping and rules, beside the document's own tags."""
    requires: Requires = defaults_of(Requires)
    """Requirements that must be met for its tools to be offered."""
    timeout: PositiveDuration | None = None
    """How long a call may take. Default 60s."""
    concurrency: PositiveCount | None = None
    """How many calls of each tool may run at once. Default 16."""
    rate_limit: WrittenRateLimit | None = None
    """How often each of its tools may be called, such as 10/minute by each caller."""

    @property
    def is_remote(self) -> bool:
        # RFC 3986 §3.1: schemes are case-insensitive.
        return self.document.lower().startswith(("https://", "http://"))
