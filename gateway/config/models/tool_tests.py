"""Models of `tests`: calls of a tool, and expected results."""

import re
from typing import Annotated, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from gateway.config.models.base import (
    TEXT_SCHEMA,
    Model,
    ShortForm,
    VerbatimObject,
    keep_text,
    not_together,
    one_of,
    plain_text,
    text_for,
    typed_interpolation,
)
from gateway.json_types import Json


def _compilable(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise PydanticCustomError("regex", "is not a regular expression: {reason}", {"reason": str(error)}) from None
    return value


class TextMatch(Model):
    """The expected text, without trailing line breaks. Exactly one key is required."""

    is_: str | None = Field(None, alias="is")
    """The whole text."""
    contains: str | None = None
    """Text that the result must contain."""
    matches: Annotated[str, AfterValidator(_compilable)] | None = None
    """A regular expression (Python syntax) that must match part of the result."""

    _check_one_key = one_of("is_", "contains", "matches", what="a form")


def _part_of_error(value: Json) -> Json:
    if value is True:
        return {"contains": ""}
    if value is False:
        raise PydanticCustomError("error", "expected true, or a part of the error text; omit it to expect success")
    return value if isinstance(value, dict | TextMatch) else {"contains": keep_text(value)}


class Expectation(Model):
    """The expected result. Exactly one key is required."""

    text: Annotated[TextMatch, text_for("is")] | None = None
    """The expected text, or with `contains` or `matches` a condition on it."""
    json_: Annotated[Json, AfterValidator(plain_text)] = Field(None, alias="json")
    """The expected structured content, or otherwise the text parsed as JSON. The order of keys is ignored."""
    error: Annotated[TextMatch, ShortForm(_part_of_error, {"anyOf": [TEXT_SCHEMA, {"const": True}]})] | None = None
    """The call must fail with an error that contains this text. `true` accepts any error."""

    _check_one_key = one_of("text", "json_", "error", what="an expectation")


class StubResponse(Model):
    """The response that a test uses instead of the backend's server. No request is sent."""

    # RFC 9110 §15.2: statuses below 200 are interim responses.
    status: Annotated[int, Field(ge=200, le=599), BeforeValidator(typed_interpolation)] = 200
    """HTTP status."""
    json_: Annotated[Json, AfterValidator(plain_text)] = Field(None, alias="json")
    """JSON body."""
    file: str | None = None
    """File with the body, relative to this file. The file name determines the media type."""

    @property
    def has_json(self) -> bool:
        return "json_" in self.model_fields_set  # null is a body too

    @model_validator(mode="after")
    def _check_one_body(self) -> Self:
        not_together(self, "json_", "file")
        return self


_NO_ARGUMENTS: Final[dict[str, Json]] = {}


class ToolTest(Model):
    """A test call of the tool, made by `mcp-gateway test` and never by a client."""

    name: str | None = None
    """Name of the test."""
    with_: VerbatimObject = Field(_NO_ARGUMENTS, alias="with")
    """Arguments. A file is `photo: {file: photo.png}`, relative to this file, or base64 as clients send it."""
    caller: VerbatimObject | None = None
    """Claims of the caller, such as `{sub: ann, groups: [ops]}`, as in a file for `call --as`."""
    http: StubResponse | None = None
    """Response to use instead of the server's response. Without this key, an HTTP backend sends a real request."""
    expect: Expectation | None = None
    """The expected result. By default, any result except an error."""
