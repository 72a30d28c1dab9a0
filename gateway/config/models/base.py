"""Building blocks of the models: the base class, field types, short forms, and references to other sections.

Each short form declares its JSON Schema, because the generated schema must accept every file that the loader accepts.
"""

import re
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, auto
from functools import cache
from typing import Annotated, Any, Final, TypeVar, Union, cast, get_args, get_origin

import msgspec
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    GetPydanticSchema,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError, core_schema

from gateway.config.core_schema import scalar
from gateway.config.models.interpolated_text import InterpolatedText
from gateway.json_types import Json


class Use(Enum):
    """The purpose of a field's text, declared as in `env: Annotated[dict[str, str], Use.SECRET]`.

    Interpolation, masking and lints depend on the purpose. Fields without a declaration inherit the purpose of the
    mapping that contains them, or have `PLAIN`.
    """

    PLAIN = auto()
    """Not secret and not shown to clients."""
    SECRET = auto()
    """Can contain secrets. Interpolated values are masked everywhere."""
    SCRIPT = auto()
    """Program text, in which `${…}` is not interpolated."""
    SHOWN = auto()
    """Shown to clients. Secrets from files are rejected."""
    NAME = auto()
    """Shown to clients, and used as a name or identifier."""
    DESCRIPTION = auto()
    """Shown to clients, and read by models before any call."""
    BODY = auto()
    """Shown to clients on request: the messages of a prompt, a fixed result, a question."""


SHOWN: Final = frozenset({Use.SHOWN, Use.NAME, Use.DESCRIPTION, Use.BODY})
"""Uses that clients can see."""


def alternatives(annotation: object, metadata: tuple[object, ...] = ()) -> Iterator[tuple[Any, tuple[object, ...]]]:
    """Yield each type in a union with its `Annotated` metadata, innermost first."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *own = get_args(annotation)
        yield from alternatives(inner, (*own, *metadata))
    elif origin in {Union, types.UnionType}:
        for each in get_args(annotation):
            yield from alternatives(each, metadata)
    else:
        yield annotation, metadata


def use_of(metadata: Iterable[object], *, default: Use) -> Use:
    return next((each for each in metadata if isinstance(each, Use)), default)


class Model(BaseModel):
    """A mapping in the configuration. Unknown keys are errors, and values are not coerced."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        # In lax mode, pydantic reads "yes" as true and "3" as 3.
        strict=True,
        # for msgspec structs such as `ParsedRate`
        arbitrary_types_allowed=True,
        defer_build=True,
    )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Build the validator of a nested model on first use, because most files use only a few models."""
        if handler.field_name is None:  # not nested
            return handler(source)
        return core_schema.no_info_plain_validator_function(cls.model_validate, metadata={"model": cls})


M = TypeVar("M", bound=Model)
K = TypeVar("K", bound=str)


def defaults_of(model: type[M], **given: Json) -> M:
    """Return a model with default values, except for `given`. Use it as the default of a field.

    The values are not validated, because building the validator at import would slow down each start.
    """
    return cast("M", model.model_construct(**given))


TEXT_SCHEMA: Final[JsonSchemaValue] = {"type": "string"}
SCALAR_SCHEMA: Final[JsonSchemaValue] = {"type": ["string", "number"]}


class ShortForm(msgspec.Struct, frozen=True, eq=False):
    """A shorter notation for a value. `expand` converts the short form, and returns all other values unchanged."""

    expand: Callable[[Json], Json]
    schema: JsonSchemaValue | None = None
    """JSON Schema of the short form. If None, the short form of a list is a single item."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self.expand, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        full = handler(schema)
        return {"anyOf": [full["items"] if self.schema is None else self.schema, full]}


def text_for(key: str) -> ShortForm:
    """Accept a string as short for `{key: string}`."""
    return ShortForm(lambda value: {key: value} if isinstance(value, str) else value, TEXT_SCHEMA)


def value_for(key: str, schema: JsonSchemaValue) -> ShortForm:
    """Accept any value except a mapping as short for `{key: value}`."""
    return ShortForm(lambda value: value if value is None or isinstance(value, dict | Model) else {key: value}, schema)


def exactly_one(model: Model, *, of: tuple[str, ...], what: str) -> str:
    """Return the only key in `of` that has a value.

    Raises:
        PydanticCustomError: no key or several keys have a value.
    """
    given = given_keys(model, of)
    if not given:
        names = ", ".join(map(_quoted, of))
        raise PydanticCustomError("nothing_given", "needs {what}: one of {names}", {"what": what, "names": names})
    if len(given) > 1:
        context = {"given": " and ".join(map(_quoted, given)), "culprit": given[1].rstrip("_")}
        raise PydanticCustomError("too_many_given", "has {given}, but only one is allowed", context)
    return given[0]


def one_of(*names: str, what: str) -> Any:
    """Return a validator for models that must have exactly one of these keys."""

    def check(model: M) -> M:
        exactly_one(model, of=names, what=what)
        return model

    return model_validator(mode="after")(check)


def not_together(model: Model, first: str, second: str) -> None:
    """Reject two keys that exclude each other.

    Raises:
        PydanticCustomError: both are present.
    """
    if len(given_keys(model, (first, second))) > 1:
        context = {"first": _quoted(first), "second": _quoted(second), "culprit": second.rstrip("_")}
        raise PydanticCustomError("not_together", "has {first} and {second}, but only one is allowed", context)


def given_keys(model: Model, names: Iterable[K]) -> list[K]:
    """Return the names of the fields that have a value. In the field `json`, an explicit null is a value."""
    return [
        name
        for name in names
        if getattr(model, name) is not None or (name == "json_" and name in model.model_fields_set)
    ]


def requires(key: str, other: str) -> Any:
    """Return a validator for models in which `key` is allowed only together with `other`."""

    def check(model: M) -> M:
        is_written = key in model.model_fields_set and getattr(model, key) not in (None, [], {})
        if is_written and getattr(model, other) in (None, False, ""):
            raise misplaced(key, requires=other)
        return model

    return model_validator(mode="after")(check)


def misplaced(key: str, *, requires: str) -> PydanticCustomError:
    context = {"key": key, "other": requires, "culprit": key}
    return PydanticCustomError("misplaced", "`{key}` requires `{other}`", context)


def _quoted(name: str) -> str:
    # Fields such as `if_` avoid names of Python and pydantic.
    return f"`{name.rstrip('_')}`"


def typed_interpolation(value: Json) -> Json:
    """Convert an interpolated value to the type that it would have without quotes (YAML 1.2 core schema)."""
    if not (isinstance(value, InterpolatedText) and value.is_whole):
        return value
    try:
        typed = scalar(value)
    except ValueError:  # a number that JSON cannot represent
        return value
    return value if typed is None else typed  # an empty variable is empty text


_takes_interpolation: Final = BeforeValidator(typed_interpolation)

Flag = Annotated[bool, _takes_interpolation]
Count = Annotated[int, Field(ge=0), _takes_interpolation]
PositiveCount = Annotated[int, Field(ge=1), _takes_interpolation]
Number = Annotated[float, _takes_interpolation]


def keep_text(value: Json) -> str:
    """Validate text. Pydantic's own validation of `str` would convert `InterpolatedText` to a plain `str`."""
    if isinstance(value, str):
        return value
    raise PydanticCustomError("string_type", "expected text")


def keep_scalar(value: Json) -> str:
    """Return text unchanged and a number as text. Reject other values."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return keep_text(value)


Template = Annotated[str, PlainValidator(keep_text), WithJsonSchema(TEXT_SCHEMA)]
"""Text that is compiled as a template later."""

ScalarTemplate = Annotated[str, PlainValidator(keep_scalar), WithJsonSchema(SCALAR_SCHEMA)]
"""A template that can also be written as a number: arguments, variables, header fields, query and form fields."""


def plain_text(value: Json) -> Json:
    """Convert interpolated text to plain strings in values that are not templates."""
    if isinstance(value, dict):
        return {key: plain_text(member) for key, member in value.items()}
    if isinstance(value, list):
        return [plain_text(item) for item in value]
    return str(value) if isinstance(value, InterpolatedText) else value


T = TypeVar("T")
S = TypeVar("S", bound=Sequence[Any])

# Strict tuples do not accept YAML's lists.
Items = Annotated[tuple[T, ...], Field(strict=False)]
"""A list. Models can share a tuple as the default, and pydantic does not copy it."""

VerbatimObject = Annotated[dict[str, Json], AfterValidator(plain_text)]
"""A JSON object that is not a template, such as `_meta`."""


NotEmpty = Annotated[str, Field(min_length=1)]


def matching(pattern: str, expected: str) -> AfterValidator:
    """Return a validator for text that matches a pattern. `expected` describes the format in errors."""

    def check(value: str) -> str:
        # `match` with `$` would accept a trailing line break.
        if re.fullmatch(pattern, value) is None:
            raise PydanticCustomError("form", "expected {expected}", {"expected": expected})
        return value

    return AfterValidator(check)


INTERPOLATION_SCHEMA: Final[JsonSchemaValue] = {"type": "string", "pattern": r"^\$\{(env|file):"}


def _distinct(*, at_least: int = 0) -> GetPydanticSchema:
    """Return an annotation that rejects lists with duplicates or too few items."""

    def check(items: S) -> S:
        if len(items) < at_least:
            raise PydanticCustomError("few_given", "needs at least {at_least} item", {"at_least": at_least})
        seen = set()
        for index, item in enumerate(items):
            if item in seen:
                raise PydanticCustomError("repeated", "contains this item twice", {"culprit": index})
            seen.add(item)
        return items

    keywords = {"uniqueItems": True, **({"minItems": at_least} if at_least else {})}
    return GetPydanticSchema(
        lambda source, handler: core_schema.no_info_after_validator_function(check, handler(source)),
        lambda schema, handler: {**handler(schema), **keywords},
    )


DISTINCT: Final = _distinct()
SOME_DISTINCT: Final = _distinct(at_least=1)


ONE_OR_MANY: Final = ShortForm(lambda value: value if isinstance(value, list) or value is None else [value])
"""Allows a single item to be written without a list."""

SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
"""RFC 6749 §3.3."""
ScopeToken = Annotated[str, matching(SCOPE.pattern, "a scope such as ops.read")]


class EntryReference(msgspec.Struct, frozen=True):
    """Marks a field that names an entry of `section`, such as `connection`.

    A change of an entry also changes the versions and lock digests of the definitions that refer to the entry. An
    error in an entry is reported once, not for each definition.
    """

    section: str


def entries_named_by(config: Model) -> Iterator[tuple[str, str]]:
    """Yield the section and name of each entry that a definition refers to, at any depth."""
    for model in models_in(config, Model):
        for field, section in _naming_fields(type(model)):
            if (name := getattr(model, field)) is not None:
                yield section, name


def models_in(value: object, kind: type[M]) -> Iterator[M]:
    """Yield the models of a class in a value, including the value itself."""
    if isinstance(value, dict):
        for member in value.values():
            yield from models_in(member, kind)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from models_in(item, kind)
    elif isinstance(value, Model):
        if isinstance(value, kind):
            yield value
        for name in _fields_with_models(type(value)):
            if member := getattr(value, name):  # most fields are unset
                yield from models_in(member, kind)


@cache  # most fields hold plain values, some of them large JSON Schemas
def _fields_with_models(model: type[Model]) -> tuple[str, ...]:
    return tuple(name for name, field in model.model_fields.items() if _names_model(field.annotation))


def _names_model(annotation: object) -> bool:
    is_model = isinstance(annotation, type) and issubclass(annotation, Model)
    return is_model or any(map(_names_model, get_args(annotation)))


@cache
def _naming_fields(model: type[Model]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name, mark.section)
        for name, field in model.model_fields.items()
        for mark in field.metadata
        if isinstance(mark, EntryReference)
    )
