"""What tools, resources and prompts say in common: how they appear, who may use them, how much, and when.

CONFIG reference: "Tools", first table. Keys marked `unsupported` are part of the language and refused by this version.
"""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from gateway.config.base import (
    Count,
    Duration,
    Flag,
    Model,
    Number,
    PositiveCount,
    Size,
    Template,
    one_or_many,
    unsupported,
)
from gateway.json_types import Json


def _web_or_data(value: str) -> str:
    if not value.startswith(("https://", "data:")):
        raise PydanticCustomError("icon", "expected an https: or data: URI; clients drop the others")
    return value


class Icon(Model):
    src: Annotated[str, BeforeValidator(_web_or_data)]
    mime_type: str | None = None
    sizes: Annotated[list[str], BeforeValidator(one_or_many)] | None = None
    """WxH, such as 48x48, or `any`."""
    theme: Literal["light", "dark"] | None = None


class Access(Model):
    scopes: list[str]
    """Scopes that the caller must hold."""
    visible: Flag = False
    """List it to callers without the scopes and answer 403 `insufficient_scope`, so that clients can step up."""


class Requires(Model):
    """When unmet, the definition is left out and the status says why; `client` is checked at each call."""

    commands: list[str] = []
    env: list[str] = []
    platforms: list[str] = []
    client: list[Literal["sampling", "elicitation", "roots"]] = []


class ContentAnnotations(Model):
    audience: list[Literal["user", "assistant"]] | None = None
    priority: Annotated[Number, Field(ge=0, le=1)] | None = None
    last_modified: str | None = None
    """ISO 8601."""


class Definition(Model):
    """Keys of every primitive."""

    title: str | None = None
    description: str | None = None
    icons: list[Icon] | None = None
    meta: dict[str, Json] | None = None
    """`_meta` of the definition, sent as it is."""
    tags: list[str] = []
    aliases: list[str] = []
    """Old names that still work; not listed."""
    access: Annotated[Access | None, BeforeValidator(unsupported)] = None
    requires: Requires = Requires()
    timeout: Duration | None = None
    concurrency: PositiveCount | None = None
    queue: Count | None = None
    rate_limit: Annotated[str | None, BeforeValidator(unsupported)] = None
    """Such as 10/minute, per caller."""
    cache: Duration | None = None


class Output(Model):
    """How a backend's result is shaped for the model."""

    format: Literal["auto", "text", "json", "image", "audio", "binary"] = "auto"
    mime_type: str | None = None
    select: str | None = None
    """JMESPath."""
    template: Template | None = None
    """Text made from `result`, `inputs`, and `exit_code`, `stderr` (shell) or `status`, `headers` (http)."""
    schema_: dict[str, Json] | None = Field(None, alias="schema")
    """JSON Schema; becomes `outputSchema`, and the structured content is validated against it."""
    max_size: Size | None = None
    overflow: Literal["truncate", "resource", "error"] | None = None
    raw: Flag = False
    """Keep terminal escapes and control characters."""


class Defaults(Model):
    """What tools, resources and prompts take when they say nothing."""

    timeout: Duration | None = None
    concurrency: PositiveCount | None = None
    queue: Count | None = None
    rate_limit: Annotated[str | None, BeforeValidator(unsupported)] = None
    coerce: Flag = True
    output: Output = Output()
