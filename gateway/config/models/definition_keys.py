"""Keys that tools, resources and prompts share."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Final, Literal, get_args

from pydantic import AfterValidator, Field
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from gateway.config.models.base import (
    DISTINCT,
    ONE_OR_MANY,
    Count,
    Flag,
    Items,
    Model,
    Number,
    PositiveCount,
    ScopeToken,
    Template,
    Use,
    VerbatimObject,
    defaults_of,
    matching,
    plain_text,
    typed_interpolation,
    value_for,
)
from gateway.config.models.quantities import Duration, PositiveDuration, PositiveSize, WrittenRateLimit
from gateway.json_types import Json

_NUMBERS_AND_FLAGS: Final = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains"),
        *("minProperties", "maxProperties", "uniqueItems", "required"),
        *("readOnly", "writeOnly", "deprecated", "additionalProperties", "additionalItems", "unevaluatedProperties"),
    }
)
_LISTS_OF_VALUES: Final = frozenset({"enum", "examples"})
_VALUES: Final = frozenset({"default", "const", *_LISTS_OF_VALUES})
"""Schema keywords whose values are data. Such data can look like a schema, but must not be changed like one."""


def interpolated_schema(schema: Json) -> Json:
    """Copy a schema and replace interpolated text with plain values: `maximum: "${env:N}"` becomes a number."""
    if isinstance(schema, list):
        return [interpolated_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return plain_text(schema)
    kind = schema.get("type")
    # Without a type, text is allowed and stays text.
    takes_text = kind in (None, "string") or (isinstance(kind, list) and "string" in kind)
    copied = {}
    for keyword, value in schema.items():
        if keyword in _VALUES:
            if keyword in _LISTS_OF_VALUES and isinstance(value, list) and not takes_text:
                value = [typed_interpolation(item) for item in value]  # noqa: PLW2901
            copied[keyword] = plain_text(value if takes_text else typed_interpolation(value))
        elif keyword in _NUMBERS_AND_FLAGS and isinstance(value, str):
            copied[keyword] = plain_text(typed_interpolation(value))
        else:
            copied[keyword] = interpolated_schema(value)
    return copied


SchemaObject = Annotated[dict[str, Json], AfterValidator(interpolated_schema)]
"""A JSON Schema object."""


ASK_TIMEOUT: Final = timedelta(minutes=10)


class Icon(Model):
    """An icon that clients can show."""

    src: Annotated[str, matching(r"(https://|data:)[\s\S]*", "an https: or data: URI; clients ignore others")]
    """An https: or data: URI."""
    mime_type: str | None = None
    """Media type, if the URI has no media type or a too general one."""
    sizes: Annotated[list[str], ONE_OR_MANY] | None = None
    """WxH, such as 48x48, or `any`."""
    theme: Literal["light", "dark"] | None = None
    """Background that the icon is designed for."""


class Access(Model):
    """Scopes required for a definition. Requires `auth`."""

    scopes: Annotated[list[ScopeToken], Field(min_length=1), DISTINCT]
    """Scopes that the caller must hold. Without them, the definition appears not to exist."""
    visible: Flag = False
    """Also list the definition to callers without the scopes. Their calls return 403 `insufficient_scope`."""


def narrowed(access: Access | None, override: Access | None) -> Access | None:
    """Combine the `access` of an entry and of its override."""
    if access is None or override is None:
        return access or override
    scopes = list(dict.fromkeys([*access.scopes, *override.scopes]))
    return Access.model_construct(scopes=scopes, visible=access.visible and override.visible)


class Requires(Model):
    """Requirements. If one is not met, the definition is not served; see `status`. `client` is checked per call."""

    commands: Annotated[Items[str], DISTINCT] = ()
    """Programs that must be on `PATH`."""
    env: Annotated[Items[str], DISTINCT] = ()
    """Environment variables that must be set for the daemon."""
    platforms: Annotated[Items[str], DISTINCT] = ()
    """Supported platforms, as values of Python's `sys.platform`: linux, darwin, and so on."""
    client: Annotated[Items[Literal["sampling", "elicitation", "roots"]], DISTINCT] = ()
    """Capabilities that the calling client must have declared."""


class ContentAnnotations(Model):
    """Hints for the client about a content block."""

    audience: Annotated[list[Literal["user", "assistant"]], DISTINCT] | None = None
    """Intended audience."""
    priority: Annotated[Number, Field(ge=0, le=1)] | None = None
    """From 0 (optional) to 1 (required)."""
    last_modified: str | None = None
    """Date and time in ISO 8601."""


ToolHint = Literal["read_only", "destructive", "idempotent", "open_world"]
"""The fields of `ToolAnnotations`, except the title."""
HINTS: Final[Mapping[str, str]] = {name: f"{to_camel(name)}Hint" for name in get_args(ToolHint)}
"""Maps keys to names in MCP."""


class ToolAnnotations(Model):
    """Hints for the client about the effects of a call."""

    title: str | None = None
    """Display name. The tool's `title` takes precedence."""
    read_only: Flag | None = None
    """The tool does not change anything."""
    destructive: Flag | None = None
    """The tool can destroy data. Only meaningful for a tool that is not read-only."""
    idempotent: Flag | None = None
    """Repeating a call with the same arguments has no further effect."""
    open_world: Flag | None = None
    """The tool interacts with systems outside this one."""


_BEGINNING: Final = re.compile(r"[A-Za-z0-9_.-]{0,63}")
UNFIT_PREFIX: Final = "cannot start a tool name: names have at most 64 of the characters A-Z a-z 0-9 _ . -"


def may_begin_names(prefix: str) -> bool:
    return _BEGINNING.fullmatch(prefix) is not None


def _fit(prefix: str) -> str:
    if not may_begin_names(prefix):
        raise PydanticCustomError("prefix", UNFIT_PREFIX)
    return prefix


NamePrefix = Annotated[str, AfterValidator(_fit)]
"""Prefix for the names of an entry's tools."""


class Definition(Model):
    """Keys of every tool, resource and prompt."""

    title: Annotated[str | None, Use.DESCRIPTION] = None
    """Display name."""
    description: Annotated[str | None, Use.DESCRIPTION] = None
    """Description that models use to choose a tool or resource."""
    icons: Annotated[list[Icon] | None, Use.SHOWN] = None
    """Icons that clients can show."""
    meta: Annotated[VerbatimObject | None, Use.DESCRIPTION] = None
    """`_meta` of the definition, sent unchanged."""
    tags: Annotated[Items[str], DISTINCT, Use.SHOWN] = ()
    """Tags for grouping and rules."""
    aliases: Annotated[Items[str], DISTINCT, Use.NAME] = ()
    """Old names that still work but are not listed."""
    access: Access | None = None
    """Scopes that callers need. Default: none."""
    requires: Requires = defaults_of(Requires)
    """Requirements that must be met before the definition is offered."""
    timeout: PositiveDuration | None = None
    """Time limit of a call, including the time in the queue and all attempts of a request. Default 60s, or the
    `timeout` of `http` (the limit of one attempt) if that is longer."""
    concurrency: PositiveCount | None = None
    """Maximum number of concurrent calls. Default 16."""
    queue: Count | None = None
    """Maximum number of waiting calls. Further calls are rejected. Default 64."""
    rate_limit: WrittenRateLimit | None = None
    """Rate limit, such as 10/minute per caller. A call whose result is a question to the client does not count."""
    cache: Duration | None = None
    """How long a result is cached, for the same arguments, caller and scopes. `http` results: for the same request."""


class Output(Model):
    """Format of a backend's result for the model."""

    format: Literal["auto", "text", "json", "lines", "jsonl", "csv", "yaml", "image", "audio", "binary"] = "auto"
    """`auto`: JSON if `schema`, `select` or the response indicates it, image or audio by media type, otherwise text.
    `lines`, `jsonl` and `csv` parse text as a list, `yaml` as one document. CSV needs a header row."""
    mime_type: Annotated[str | None, Use.SHOWN] = None
    """Media type of the result. Default: the media type that the backend reports."""
    select: str | None = None
    """JMESPath expression that selects part of a parsed result."""
    template: Annotated[Template | None, Use.BODY] = None
    """Template with `result`, `inputs`, and `exit_code`, `stderr` (shell) or `status`, `headers` (http)."""
    schema_: Annotated[SchemaObject | None, Use.DESCRIPTION] = Field(None, alias="schema")
    """JSON Schema of the structured content, used for validation and sent to clients as `outputSchema`."""
    mismatch: Literal["error", "accept"] = "error"
    """How to handle a result that does not match `schema`. With `accept`, the result is returned, counted and logged
    once, and the schema that is sent to clients accepts any object."""
    max_size: PositiveSize | None = None
    """Maximum size of the output. Default 256KiB, or 10MiB in total for images and other content of an upstream."""
    overflow: Literal["truncate", "resource", "error"] | None = None
    """How to handle a longer result: remove its middle, return a link to a stored copy, or fail. Default truncate."""
    raw: Flag = False
    """Keep terminal escape sequences and control characters."""


TaskMode = Literal["never", "optional", "required"]


class ToolTask(Model):
    """Whether a call of the tool becomes a task, which outlives its request (`io.modelcontextprotocol/tasks`)."""

    mode: TaskMode
    """`never`: calls are ordinary. `optional`: a call becomes a task if the client has declared the extension.
    `required`: calls are always tasks, and other clients are rejected (-32021)."""
    after: Duration = timedelta()
    """With `optional`: calls that finish within this time are answered directly. Longer calls become tasks."""
    ttl: PositiveDuration | None = None
    """How long the task is kept after its creation. A task that still runs after this time is stopped. Default 1h."""
    poll: PositiveDuration = timedelta(seconds=1)
    """How often clients should poll for the status. The interval grows with the age of the task, up to tenfold."""
    ask: Literal["inside", "before"] = "inside"
    """When to ask the client: inside the task, which then waits for input, or before the task is created."""
    restart: Count = 0
    """How often the task is restarted if its process dies, before the task fails. Requires `annotations.idempotent`."""


WrittenToolTask = Annotated[ToolTask, value_for("mode", {"type": "string", "enum": ["never", "optional", "required"]})]
"""The mode as plain text, or a mapping."""


class TaskDefaults(Model):
    """Defaults of tasks."""

    ttl: PositiveDuration = timedelta(hours=1)
    """How long a task is kept after its creation."""


class Defaults(Model):
    """Defaults of tools, resources and prompts."""

    timeout: PositiveDuration | None = None
    """Time limit of a call. Default 60s."""
    concurrency: PositiveCount | None = None
    """Maximum number of concurrent calls of one tool. Default 16."""
    queue: Count | None = None
    """Maximum number of waiting calls of one tool. Default 64."""
    rate_limit: WrittenRateLimit | None = None
    """Rate limit of each definition, such as 10/minute per caller."""
    ask_timeout: PositiveDuration | None = None
    """Time limit for a user to answer a question. Default 10m."""
    coerce: Flag = True
    """Convert a string that is exactly JSON of the required type to that type. Treat null as an omitted value."""
    output: Output = defaults_of(Output)
    """Output format."""
    task: TaskDefaults = defaults_of(TaskDefaults)
    """Defaults of tasks."""
