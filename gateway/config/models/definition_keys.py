"""Keys that tools, resources and prompts share: appearance, access, limits, and the shape of results."""

import re
from datetime import timedelta
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from gateway.config.models.auth import ScopeToken
from gateway.config.models.base import (
    DISTINCT,
    ONE_OR_MANY,
    Count,
    Flag,
    Items,
    Model,
    Number,
    PositiveCount,
    Template,
    VerbatimObject,
    defaults_of,
)
from gateway.config.models.field_use import Use
from gateway.config.models.json_schema import SchemaObject
from gateway.config.models.quantities import Duration, PositiveDuration, PositiveSize, WrittenRateLimit
from gateway.config.models.tasks import TaskDefaults

ASK_TIMEOUT: Final = timedelta(minutes=10)
"""The default of `ask_timeout`, where `defaults` has none."""


def _web_or_data(value: str) -> str:
    if not value.startswith(("https://", "data:")):
        raise PydanticCustomError("icon", "expected an https: or data: URI; clients drop the others")
    return value


class Icon(Model):
    """A picture that clients may show."""

    src: Annotated[str, AfterValidator(_web_or_data)]
    """An https: or data: URI."""
    mime_type: str | None = None
    """Media type, where the URI's own is missing or too general."""
    sizes: Annotated[list[str], ONE_OR_MANY] | None = None
    """WxH, such as 48x48, or `any`."""
    theme: Literal["light", "dark"] | None = None
    """The background that it was drawn for."""


class Access(Model):
    """The scopes that a definition needs. Needs `auth`."""

    scopes: Annotated[list[ScopeToken], Field(min_length=1), DISTINCT]
    """Scopes that the caller must hold; without them the definition is as unknown."""
    visible: Flag = False
    """List it to callers without the scopes and answer 403 `insufficient_scope`, so that clients can step up."""


def narrowed(access: Access | None, override: Access | None) -> Access | None:
    """Return what a definition needs whose entry and whose override both say something of it."""
    if access is None or override is None:
        return access or override
    scopes = list(dict.fromkeys([*access.scopes, *override.scopes]))
    return Access.model_construct(scopes=scopes, visible=access.visible and override.visible)


class Requires(Model):
    """Requirements; while one is unmet, the definition is left out and `status` says why. `client` is per call."""

    commands: Annotated[Items[str], DISTINCT] = ()
    """Programs that must be on PATH."""
    env: Annotated[Items[str], DISTINCT] = ()
    """Variables that must be set in the daemon's environment."""
    platforms: Annotated[Items[str], DISTINCT] = ()
    """Systems that it works on, as Python's `sys.platform` calls them: linux, darwin …"""
    client: Annotated[Items[Literal["sampling", "elicitation", "roots"]], DISTINCT] = ()
    """Capabilities that the calling client must have declared."""


class ContentAnnotations(Model):
    """Hints for the client about one piece of content."""

    audience: Annotated[list[Literal["user", "assistant"]], DISTINCT] | None = None
    """Whom it is meant for."""
    priority: Annotated[Number, Field(ge=0, le=1)] | None = None
    """From 0 (optional) to 1 (required)."""
    last_modified: str | None = None
    """ISO 8601."""


_BEGINNING: Final = re.compile(r"[A-Za-z0-9_.-]{0,63}")
UNFIT_PREFIX: Final = "cannot begin a tool's name: that has at most 64 of the characters A-Z a-z 0-9 _ . -"


def may_begin_names(prefix: str) -> bool:
    """Whether names of tools may begin so."""
    return _BEGINNING.fullmatch(prefix) is not None


def _fit(prefix: str) -> str:
    if not may_begin_names(prefix):
        raise PydanticCustomError("prefix", UNFIT_PREFIX)
    return prefix


NamePrefix = Annotated[str, AfterValidator(_fit)]
"""Put before the names of an entry's tools."""


class Definition(Model):
    """Keys of every primitive."""

    title: Annotated[str | None, Use.DESCRIPTION] = None
    """A name for people."""
    description: Annotated[str | None, Use.DESCRIPTION] = None
    """What it is for: models choose by it."""
    icons: Annotated[list[Icon] | None, Use.SHOWN] = None
    """Pictures that clients may show."""
    meta: Annotated[VerbatimObject | None, Use.DESCRIPTION] = None
    """`_meta` of the definition, sent as it is."""
    tags: Annotated[Items[str], DISTINCT, Use.SHOWN] = ()
    """Words for grouping and rules."""
    aliases: Annotated[Items[str], DISTINCT, Use.NAME] = ()
    """Old names that still work; not listed."""
    access: Access | None = None
    """Who may use it; without this everybody."""
    requires: Requires = defaults_of(Requires)
    """Requirements that must be met for it to be offered."""
    timeout: PositiveDuration | None = None
    """How long a call may take, waiting for its turn and all attempts of a request included. Default 60s, or the
    `timeout` of its `http`, which bounds one attempt, where that is longer."""
    concurrency: PositiveCount | None = None
    """How many calls may run at once. Default 16."""
    queue: Count | None = None
    """How many more calls may wait for their turn; beyond that they are refused. Default 64."""
    rate_limit: WrittenRateLimit | None = None
    """How often it may be called, such as 10/minute by each caller. A call that ends with a question does not count."""
    cache: Duration | None = None
    """How long an answer is reused: for the same arguments, caller and scopes; with HTTP, for the same request."""


class Output(Model):
    """The shape that a backend's result is given for the model."""

    format: Literal["auto", "text", "json", "image", "audio", "binary"] = "auto"
    """`auto`: JSON where `schema`, `select` or the response says so, image and audio by media type, otherwise text."""
    mime_type: Annotated[str | None, Use.SHOWN] = None
    """Media type of the result, instead of what the backend says."""
    select: str | None = None
    """JMESPath that picks from a JSON result."""
    template: Annotated[Template | None, Use.BODY] = None
    """Text made from `result`, `inputs`, and `exit_code`, `stderr` (shell) or `status`, `headers` (http)."""
    schema_: Annotated[SchemaObject | None, Use.DESCRIPTION] = Field(None, alias="schema")
    """JSON Schema; becomes `outputSchema`, and the structured content is validated against it."""
    mismatch: Literal["error", "accept"] = "error"
    """Treatment of a result that does not fit `schema`. `accept` gives it all the same, counts it and logs it once; the
    schema that clients see then admits every object."""
    max_size: PositiveSize | None = None
    """The most that is passed on. Default 256KiB; for images and other content of an upstream, 10MiB together."""
    overflow: Literal["truncate", "resource", "error"] | None = None
    """Treatment of a longer result: cut in the middle, kept as a linked resource, or an error. Default truncate."""
    raw: Flag = False
    """Keep terminal escapes and control characters."""


class Defaults(Model):
    """Defaults of tools, resources and prompts."""

    timeout: PositiveDuration | None = None
    """How long a call may take. Default 60s."""
    concurrency: PositiveCount | None = None
    """How many calls of one tool may run at once. Default 16."""
    queue: Count | None = None
    """How many more calls of one tool may wait for their turn. Default 64."""
    rate_limit: WrittenRateLimit | None = None
    """How often each of them may be called, such as 10/minute by each caller."""
    ask_timeout: PositiveDuration | None = None
    """How long a question to the user may stay open. Default 10m."""
    coerce: Flag = True
    """Accept a string that is exactly JSON of the wanted type as a value of that type, and null for what may be left
    out."""
    output: Output = defaults_of(Output)
    """The shape of results."""
    task: TaskDefaults = defaults_of(TaskDefaults)
    """Tasks."""
