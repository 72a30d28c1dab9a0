"""Base class of all configuration models, and the scalar types of the configuration language.

A model defines the allowed values. It does not read files, resolve paths or compile templates. Types with a shorter
form declare it in the generated schema, which must accept everything that the loader accepts.
"""

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, TypeVar, cast

import msgspec
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError, core_schema

from gateway.config.core_schema import scalar
from gateway.config.models.interpolated_text import InterpolatedText
from gateway.json_types import Json


class Model(BaseModel):
    """A mapping in the configuration. Unknown keys are errors, values are not coerced, and models are immutable."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        # pydantic's lax mode takes the text "yes" for true, and "3" for 3.
        strict=True,
        # msgspec's structs, such as `ParsedRate`.
        arbitrary_types_allowed=True,
        defer_build=True,
    )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Defer the validator of a nested model until a file first uses the model.

        Pydantic would otherwise build validators for all nested models, and most files use only a few.
        """
        if handler.field_name is None:  # not within another
            return handler(source)
        return core_schema.no_info_plain_validator_function(cls.model_validate, metadata={"model": cls})


M = TypeVar("M", bound=Model)


def defaults_of(model: type[M], **given: Json) -> M:
    """Return the model of an empty mapping, used as the default of a field. `given` overrides its defaults.

    It is created without validation. Otherwise pydantic would build the validators of every such model at import. That
    would take a quarter of the time of all models, and most files do not need these validators.
    """
    return cast("M", model.model_construct(**given))


TEXT_SCHEMA: Final[JsonSchemaValue] = {"type": "string"}
SCALAR_SCHEMA: Final[JsonSchemaValue] = {"type": ["string", "number"]}


class ShortForm(msgspec.Struct, frozen=True, eq=False):
    """A shorter way to write a value. `expand` converts it to the full form and returns any other value unchanged."""

    expand: Callable[[Json], Json]
    schema: JsonSchemaValue | None = None
    """Schema of the short form. None means one item of the list, without brackets."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self.expand, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        full = handler(schema)
        return {"anyOf": [full["items"] if self.schema is None else self.schema, full]}


def text_for(key: str) -> ShortForm:
    """Return the short form of a mapping: the text of one of its keys."""
    return ShortForm(lambda value: {key: value} if isinstance(value, str) else value, TEXT_SCHEMA)


def value_for(key: str, schema: JsonSchemaValue) -> ShortForm:
    """Return the short form of a mapping: the value of one of its keys. That key reports errors for any value."""
    return ShortForm(lambda value: value if value is None or isinstance(value, dict | Model) else {key: value}, schema)


def exactly_one(model: Model, *, of: tuple[str, ...], what: str) -> str:
    """Return the only key of `of` that has a value. Keys without a value do not count.

    Raises:
        PydanticCustomError: none has a value, or more than one has.
    """
    given = [name for name in of if getattr(model, name) is not None]
    if not given:
        raise PydanticCustomError("nothing_given", "needs {what}: one of {names}", {"what": what, "names": _listed(of)})
    if len(given) > 1:
        context = {"given": " and ".join(map(_quoted, given)), "culprit": given[1].rstrip("_")}
        raise PydanticCustomError("too_many_given", "has {given}; only one can be given", context)
    return given[0]


def not_together(model: Model, first: str, second: str) -> None:
    """Reject two keys that exclude each other.

    Raises:
        PydanticCustomError: both are present.
    """
    if getattr(model, first) is not None and getattr(model, second) is not None:
        context = {"first": _quoted(first), "second": _quoted(second), "culprit": second.rstrip("_")}
        raise PydanticCustomError("not_together", "has {first} and {second}; only one can be given", context)


def misplaced(key: str, *, goes_with: str) -> PydanticCustomError:
    """Return the error for a key that requires another key."""
    context = {"key": key, "other": goes_with, "culprit": key}
    return PydanticCustomError("misplaced", "`{key}` goes with `{other}`", context)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(_quoted, names))


def _quoted(name: str) -> str:
    # `if_`, `json_` and such are written without it: Python, or pydantic, has those names.
    return f"`{name.rstrip('_')}`"


def typed_interpolation(value: Json) -> Json:
    """Convert a value that is one interpolation to the type it would have without quotes (YAML 1.2 core schema)."""
    if not (isinstance(value, InterpolatedText) and value.is_whole):
        return value
    try:
        typed = scalar(value)
    except ValueError:  # a number that JSON does not have
        return value
    return value if typed is None else typed  # an empty variable is empty text


_takes_interpolation: Final = BeforeValidator(typed_interpolation)

Flag = Annotated[bool, _takes_interpolation]
Count = Annotated[int, Field(ge=0), _takes_interpolation]
PositiveCount = Annotated[int, Field(ge=1), _takes_interpolation]
Number = Annotated[float, _takes_interpolation]


def keep_text(value: Json) -> str:
    """Return text unchanged. An `InterpolatedText` keeps its parts, which pydantic's own `str` would drop."""
    if isinstance(value, str):
        return value
    raise PydanticCustomError("string_type", "expected text")


def keep_scalar(value: Json) -> str:
    """Return text unchanged, and a bare number as text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return keep_text(value)


Template = Annotated[str, PlainValidator(keep_text), WithJsonSchema(TEXT_SCHEMA)]
"""Text that a template engine compiles later. See `gateway.config.models.interpolated_text.parts_of`."""

ScalarTemplate = Annotated[str, PlainValidator(keep_scalar), WithJsonSchema(SCALAR_SCHEMA)]
"""A template that can also be a bare number: arguments, environment, header fields, query and form fields."""


def plain_text(value: Json) -> Json:
    """Copy JSON with plain strings, for values that are not templates."""
    if isinstance(value, dict):
        return {key: plain_text(member) for key, member in value.items()}
    if isinstance(value, list):
        return [plain_text(item) for item in value]
    return str(value) if isinstance(value, InterpolatedText) else value


T = TypeVar("T")
S = TypeVar("S", bound=Sequence[Any])

# A strict tuple would not take a list, which is what YAML has.
Items = Annotated[tuple[T, ...], Field(strict=False)]
"""A list, stored as a tuple, so that all models can share the default and pydantic does not copy it."""

VerbatimObject = Annotated[dict[str, Json], AfterValidator(plain_text)]
"""A JSON object that is never treated as a template: `_meta`, JSON Schemas."""


def _something(value: str) -> str:
    if not value:
        raise PydanticCustomError("nothing_written", "must not be empty")
    return value


NotEmpty = Annotated[str, AfterValidator(_something), Field(min_length=1)]


def matching(pattern: str, expected: str) -> AfterValidator:
    """Return a type for text that matches a pattern. Errors use its name and example."""

    def check(value: str) -> str:
        # Not `match` with a `$`, which lets a line break at the end pass.
        if re.fullmatch(pattern, value) is None:
            raise PydanticCustomError("form", "expected {expected}", {"expected": expected})
        return value

    return AfterValidator(check)


INTERPOLATION_SCHEMA: Final[JsonSchemaValue] = {"type": "string", "pattern": r"^\$\{(env|file):"}


class Distinct(msgspec.Struct, frozen=True, eq=False):
    """Rejects a list with duplicates, or with too few items. Both are mistakes."""

    at_least: int = 0

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(schema), "uniqueItems": True, **({"minItems": self.at_least} if self.at_least else {})}

    def _check(self, items: S) -> S:
        if len(items) < self.at_least:
            raise PydanticCustomError("few_given", "needs {at_least} item or more", {"at_least": self.at_least})
        seen = set()
        for index, item in enumerate(items):
            if item in seen:
                raise PydanticCustomError("repeated", "contains this item twice", {"culprit": index})
            seen.add(item)
        return items


DISTINCT: Final = Distinct()
SOME_DISTINCT: Final = Distinct(at_least=1)


def _listed_if_single(value: Json) -> Json:
    return value if isinstance(value, list) or value is None else [value]


ONE_OR_MANY: Final = ShortForm(_listed_if_single)
"""Allows a list with one item to be written without brackets."""
