"""The changes to what an upstream or an OpenAPI document offers: the models of `override`."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from gateway.config.models.backends import Retry
from gateway.config.models.base import DISTINCT, ONE_OR_MANY, Flag, Items, Template, misplaced
from gateway.config.models.definition_keys import ContentAnnotations, Definition, Output
from gateway.config.models.definitions import ToolAnnotations
from gateway.config.models.field_use import Use
from gateway.config.models.quantities import PositiveDuration
from gateway.config.models.tool_tests import ToolTest
from gateway.json_types import Json


class _ToolChanges(Definition):
    """The changes to one tool, wherever it comes from."""

    name: Annotated[str | None, Use.NAME] = None
    """The name that it has here, after the prefix."""
    annotations: Annotated[ToolAnnotations | None, Use.DESCRIPTION] = None
    """What calling it may do; what is not said stays as the upstream says it, or follows from the method."""
    output: Output | None = None
    """The shape of the result, in place of the one that its source describes."""
    confirm: Annotated[Template | None, Use.BODY] = None
    """A question put to the user before the tool runs."""
    confirm_fallback: Literal["deny", "allow"] = "deny"
    """What happens where the client cannot ask."""
    ask_timeout: PositiveDuration | None = None
    """How long a question may stay open. Default 10m."""
    tests: Annotated[Items[ToolTest], Use.SECRET] = Field((), repr=False)
    """Calls that `mcp-gateway test` makes; not sent to clients."""

    @model_validator(mode="after")
    def _asks_where_it_says_how(self) -> Self:
        if self.confirm is None and "confirm_fallback" in self.model_fields_set:
            raise misplaced("confirm_fallback", goes_with="confirm")
        return self


class ToolOverride(_ToolChanges):
    """The changes to one tool of an upstream."""

    validate_: Flag | None = Field(None, alias="validate")
    """Whether arguments are held to its `inputSchema` here already."""

    @model_validator(mode="after")
    def _needs_no_stand_in(self) -> Self:
        if any(test.http is not None for test in self.tests):
            message = "has tests with `http`, which stands in for the server of an `http` backend"
            raise PydanticCustomError("stand_in", message, {"culprit": "tests"})
        return self


class ResourceOverride(Definition):
    """The changes to one resource or resource template of an upstream."""

    annotations: Annotated[ContentAnnotations | None, Use.DESCRIPTION] = None
    """Hints for the client."""
    mime_type: Annotated[str | None, Use.SHOWN] = None
    """Media type."""


class PromptOverride(Definition):
    """The changes to one prompt of an upstream."""

    name: Annotated[str | None, Use.NAME] = None
    """The name that it has here, after the prefix."""


class OperationOverride(_ToolChanges):
    """The changes to the tool of one operation."""

    hide: Annotated[list[str], DISTINCT, ONE_OR_MANY] = []
    """Inputs that models are not asked for, and that are never sent."""
    set: Annotated[dict[str, Json], Use.SECRET] = {}
    """Inputs that models are not asked for, with the value that is always sent."""
    retry: Retry | None = None
    """When to send a request again."""

    @model_validator(mode="after")
    def _sets_what_it_shows(self) -> Self:
        if both := sorted(set(self.hide) & self.set.keys()):
            context = {"both": both[0], "culprit": "set"}
            raise PydanticCustomError(
                "hidden_and_set", "`{both}` is in `hide` and in `set`; `set` alone is enough", context
            )
        return self
