"""Models of `override`: changes to definitions from an upstream or an OpenAPI document."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from gateway.config.models.backends import Retry
from gateway.config.models.base import DISTINCT, ONE_OR_MANY, Flag, Items, Template, Use, misplaced
from gateway.config.models.definition_keys import ContentAnnotations, Definition, Output, ToolAnnotations
from gateway.config.models.quantities import PositiveDuration
from gateway.config.models.tool_tests import ToolTest
from gateway.json_types import Json


class _ToolChanges(Definition):
    """Changes to one tool, whatever its source."""

    name: Annotated[str | None, Use.NAME] = None
    """New name, after the prefix."""
    annotations: Annotated[ToolAnnotations | None, Use.DESCRIPTION] = None
    """Hints about the effects of a call. Omitted hints keep the upstream's value, or follow from the HTTP method."""
    output: Output | None = None
    """Output format, instead of the one that the source describes."""
    confirm: Annotated[Template | None, Use.BODY] = None
    """A question that the user must confirm before the tool runs."""
    confirm_fallback: Literal["deny", "allow"] = "deny"
    """What to do if the client cannot ask the user."""
    ask_timeout: PositiveDuration | None = None
    """Time limit for the user to answer a question. Default 10m."""
    tests: Annotated[Items[ToolTest], Use.SECRET] = Field((), repr=False)
    """Calls made by `mcp-gateway test`. They are not sent to clients."""

    @model_validator(mode="after")
    def _check_confirm(self) -> Self:
        if self.confirm is None and "confirm_fallback" in self.model_fields_set:
            raise misplaced("confirm_fallback", requires="confirm")
        return self


class ToolOverride(_ToolChanges):
    """Changes to one tool of an upstream."""

    validate_: Flag | None = Field(None, alias="validate")
    """Whether the gateway validates arguments against the tool's `inputSchema` before it calls the upstream."""

    @model_validator(mode="after")
    def _check_tests(self) -> Self:
        if any(test.http is not None for test in self.tests):
            message = "has tests with `http`, which replaces the server of an `http` backend"
            raise PydanticCustomError("stand_in", message, {"culprit": "tests"})
        return self


class ResourceOverride(Definition):
    """Changes to one resource or resource template of an upstream."""

    annotations: Annotated[ContentAnnotations | None, Use.DESCRIPTION] = None
    """Hints for the client."""
    mime_type: Annotated[str | None, Use.SHOWN] = None
    """Media type."""


class PromptOverride(Definition):
    """Changes to one prompt of an upstream."""

    name: Annotated[str | None, Use.NAME] = None
    """New name, after the prefix."""


class OperationOverride(_ToolChanges):
    """Changes to the tool of one operation."""

    hide: Annotated[list[str], DISTINCT, ONE_OR_MANY] = []
    """Inputs to remove from the tool. They are never sent."""
    set: Annotated[dict[str, Json], Use.SECRET] = {}
    """Inputs to remove from the tool, each with a fixed value that is always sent."""
    retry: Retry | None = None
    """Retry policy."""

    @model_validator(mode="after")
    def _check_hide_and_set(self) -> Self:
        if both := sorted(set(self.hide) & self.set.keys()):
            context = {"both": both[0], "culprit": "set"}
            raise PydanticCustomError("hidden_and_set", "`{both}` is in `hide` and in `set`; `set` is enough", context)
        return self
