"""The base of all models of the file: strictness, and the scalar types of the configuration language.

A model says what may be written; nothing here reads files, resolves paths or compiles templates. Every type that takes
a shorter form than its own says so to the generated schema, too, which must accept what the loader accepts.
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
    """A mapping of the file: unknown keys are errors, values keep their type, nothing changes after loading."""

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
        """Leave a model within another one to itself: its validator is built when the first file has it.

        Pydantic would build one of all that a model may hold, of which most files use little.
        """
        if handler.field_name is None:  # not within another
            return handler(source)
        return core_schema.no_info_plain_validator_function(cls.model_validate, metadata={"model": cls})


M = TypeVar("M", bound=Model)


def defaults_of(model: type[M], **given: Json) -> M:
    """Return the model of an empty mapping, for the default of a field; `given` are defaults of its own.

    Made without validation, for which pydantic would build the validators of each such model while this is imported:
    a quarter of the time that all models take, for validators that few files need.
    """
    return cast("M", model.model_construct(**given))


TEXT_SCHEMA: Final[JsonSchemaValue] = {"type": "string"}
SCALAR_SCHEMA: Final[JsonSchemaValue] = {"type": ["string", "number"]}


class ShortForm(msgspec.Struct, frozen=True, eq=False):
    """A shorter way to write a value: `expand` turns it into the full form, and leaves everything else alone."""

    expand: Callable[[Json], Json]
    schema: JsonSchemaValue | None = None
    """The short form; None for "one item of the list, without its brackets"."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self.expand, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        full = handler(schema)
        return {"anyOf": [full["items"] if self.schema is None else self.schema, full]}


def text_for(key: str) -> ShortForm:
    """Return the short form of a mapping that is the text of one of its keys."""
    return ShortForm(lambda value: {key: value} if isinstance(value, str) else value, TEXT_SCHEMA)


def value_for(key: str, schema: JsonSchemaValue) -> ShortForm:
    """Return the short form of a mapping that is the value of one of its keys, which says what is wrong with any."""
    return ShortForm(lambda value: value if value is None or isinstance(value, dict | Model) else {key: value}, schema)


def exactly_one(model: Model, *, of: tuple[str, ...], what: str) -> str:
    """Return which of the keys `of` is given; one without a value is not.

    Raises:
        PydanticCustomError: none is, or more than one.
    """
    given = [name for name in of if getattr(model, name) is not None]
    if not given:
        raise PydanticCustomError("nothing_given", "needs {what}: one of {names}", {"what": what, "names": _listed(of)})
    if len(given) > 1:
        context = {"given": " and ".join(map(_quoted, given)), "culprit": given[1].rstrip("_")}
        raise PydanticCustomError("too_many_given", "has {given}; only one can be given", context)
    return given[0]


def not_together(model: Model, first: str, second: str) -> None:
    """Refuse two keys that answer the same question.

    Raises:
        PydanticCustomError: both are given.
    """
    if getattr(model, first) is not None and getattr(model, second) is not None:
        context = {"first": _quoted(first), "second": _quoted(second), "culprit": second.rstrip("_")}
        raise PydanticCustomError("not_together", "has {first} and {second}; only one can be given", context)


def misplaced(key: str, *, goes_with: str) -> PydanticCustomError:
    """The error for a key that means nothing without another one."""
    context = {"key": key, "other": goes_with, "culprit": key}
    return PydanticCustomError("misplaced", "`{key}` goes with `{other}`", context)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(_quoted, names))


def _quoted(name: str) -> str:
    # `if_`, `json_` and such are written without it: Python, or pydantic, has those names.
    return f"`{name.rstrip('_')}`"


def typed_interpolation(value: Json) -> Json:
    """Give a value that is one interpolation the type that it would have without quotes (YAML 1.2 core schema)."""
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
    """Take text as it is: an `InterpolatedText` keeps its parts, which pydantic's own `str` would drop."""
    if isinstance(value, str):
        return value
    raise PydanticCustomError("string_type", "expected text")


def keep_scalar(value: Json) -> str:
    """Take text, or a bare number as text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return keep_text(value)


Template = Annotated[str, PlainValidator(keep_text), WithJsonSchema(TEXT_SCHEMA)]
"""Text that a template engine compiles later; see `gateway.config.models.interpolated_text.parts_of`."""

ScalarTemplate = Annotated[str, PlainValidator(keep_scalar), WithJsonSchema(SCALAR_SCHEMA)]
"""A template where a bare number is taken as text: argv, environment, header fields, query and form fields."""


def plain_text(value: Json) -> Json:
    """Copy JSON with plain strings, for values that no template engine sees."""
    if isinstance(value, dict):
        return {key: plain_text(member) for key, member in value.items()}
    if isinstance(value, list):
        return [plain_text(item) for item in value]
    return str(value) if isinstance(value, InterpolatedText) else value


T = TypeVar("T")
S = TypeVar("S", bound=Sequence[Any])

# A strict tuple would not take a list, which is what YAML has.
Items = Annotated[tuple[T, ...], Field(strict=False)]
"""A list. Kept as a tuple: where it is left out, all models share the default, and pydantic copies none."""

VerbatimObject = Annotated[dict[str, Json], AfterValidator(plain_text)]
"""A JSON object that no template engine sees: `_meta`, JSON Schemas."""


def _something(value: str) -> str:
    if not value:
        raise PydanticCustomError("nothing_written", "must not be empty")
    return value


NotEmpty = Annotated[str, AfterValidator(_something), Field(min_length=1)]


def matching(pattern: str, expected: str) -> AfterValidator:
    """Text of a form that has a name and an example."""

    def check(value: str) -> str:
        # Not `match` with a `$`, which lets a line break at the end pass.
        if re.fullmatch(pattern, value) is None:
            raise PydanticCustomError("form", "expected {expected}", {"expected": expected})
        return value

    return AfterValidator(check)


INTERPOLATION_SCHEMA: Final[JsonSchemaValue] = {"type": "string", "pattern": r"^\$\{(env|file):"}


class Distinct(msgspec.Struct, frozen=True, eq=False):
    """Refuses a list that has an item twice, or too few: neither can be meant."""

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
                raise PydanticCustomError("repeated", "has this item twice", {"culprit": index})
            seen.add(item)
        return items


DISTINCT: Final = Distinct()
SOME_DISTINCT: Final = Distinct(at_least=1)


def _listed_if_single(value: Json) -> Json:
    return value if isinstance(value, list) or value is None else [value]


ONE_OR_MANY: Final = ShortForm(_listed_if_single)
"""Lets a list with one item be written without its brackets."""
