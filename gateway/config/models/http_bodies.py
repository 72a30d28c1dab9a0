"""Bodies of HTTP requests: `form`, `multipart` and `body`."""

from typing import Annotated, Self

from pydantic import Discriminator, Field, PlainValidator, Tag, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from gateway.config.models.base import Model, ScalarTemplate, Template, exactly_one, keep_scalar, misplaced
from gateway.json_types import Json


def text_unless(model: type[Model], tag: str) -> Discriminator:
    """Return the discriminator of a union: "text" for a template, otherwise `tag`."""
    return Discriminator(lambda value: tag if isinstance(value, dict | model) else "text")


class FileBody(Model):
    """A request body that is the content of one file."""

    file: Template
    """A path relative to this file, or a single expression that refers to an input of `type: file`."""
    type: Template | None = None
    """Media type. Default: the media type of the file."""


Body = Annotated[
    Annotated[Template, Tag("text")] | Annotated[FileBody, Tag("a file")],
    text_unless(FileBody, "a file"),
]
"""Text, a single expression that refers to an input of `type: file`, or a file."""


class Part(Model):
    """A part of a multipart body. Exactly one of `file`, `text` and `json` is required."""

    file: Template | None = None
    """A path relative to this file (at most 64 MiB), or one expression for one or more inputs of `type: file`."""
    text: ScalarTemplate | None = None
    """The text of the part."""
    json_: Json = Field(None, alias="json")
    """A JSON value. A value that is a single expression keeps the type of the result."""
    name: Template | None = None
    """File name. Default: the name of the file, or the name of the field with the suffix of the media type."""
    type: Template | None = None
    """Media type. Default: the media type of the file, application/json for JSON, and none for text."""

    @property
    def kind(self) -> str:
        return exactly_one(self, of=("file", "text", "json_"), what="a content")

    @model_validator(mode="after")
    def _check_one_content(self) -> Self:
        if self.kind == "text" and self.name is not None:
            raise misplaced("name", requires="file")
        return self


PartValue = Annotated[
    Annotated[ScalarTemplate, Tag("text")] | Annotated[Part, Tag("a part")],
    text_unless(Part, "a part"),
]
"""Text, an expression (a file is sent as a file, an object as JSON, other results as text), or a complete part."""


MultipartField = Annotated[
    Annotated[PartValue, Tag("one part")] | Annotated[list[PartValue], Tag("parts")],
    Discriminator(lambda value: "parts" if isinstance(value, list) else "one part"),
]
"""One part, or several with the same name."""


def _form_value(value: Json, *, is_inner: bool = False) -> Json:
    """Validate the value of a form field, and convert numbers to text, also in lists and mappings."""
    if isinstance(value, list):
        return [_form_value(item, is_inner=True) for item in value]
    if isinstance(value, dict):
        for name in value:
            # Nested fields are sent as `a[b]`, so brackets in a name would be ambiguous.
            if "[" in name or "]" in name:
                message = "the name of a nested field cannot contain brackets. Use a nested mapping"
                raise PydanticCustomError("brackets", message, {"culprit": name})
        return {name: _form_value(member, is_inner=True) for name, member in value.items()}
    try:
        return keep_scalar(value)
    except PydanticCustomError as error:
        if not is_inner:
            raise
        raise PydanticCustomError("nested_form", "expected only text, lists and mappings") from error


FormValue = Annotated[
    Json, PlainValidator(_form_value), WithJsonSchema({"type": ["string", "number", "array", "object"]})
]
"""The value of a form field: text, a list (the field repeats), or a mapping (`field[name]`)."""
