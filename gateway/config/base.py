"""What all models of the file share: strictness, and the scalar types of the configuration language.

A model says what may be written; nothing here reads files, resolves paths or compiles templates.
"""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Final, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from gateway.config.text import Interpolated
from gateway.json_types import Json

T = TypeVar("T")


class Model(BaseModel):
    """A mapping of the file: unknown keys are errors, values keep their type, nothing changes after loading."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True, use_attribute_docstrings=True
    )


def unsupported(_value: Json) -> Json:
    """Refuse a key that the language knows and this version does not carry out yet."""
    raise PydanticCustomError("unsupported", "not supported by this version")


def exactly_one(model: Model, *, of: tuple[str, ...], what: str) -> str:
    """Return which of the keys `of` is given.

    Raises:
        PydanticCustomError: none is, or more than one.
    """
    given = [name for name in of if name in model.model_fields_set]
    match given:
        case [name]:
            return name
        case []:
            raise PydanticCustomError("nothing_given", "needs {what}: one of {names}", _choices(what, of))
        case _:
            names = " and ".join(f"`{name.rstrip('_')}`" for name in given)
            raise PydanticCustomError(
                "too_many_given", "has {given}; only one {what} can be given", {"given": names, "what": what}
            )


def _choices(what: str, names: tuple[str, ...]) -> dict[str, str]:
    return {"what": what, "names": ", ".join(f"`{name.rstrip('_')}`" for name in names)}


def _typed_interpolation(value: Json) -> Json:
    """A value that is one interpolation takes its field's type (YAML 1.2 core schema)."""
    if not (isinstance(value, Interpolated) and value.is_whole):
        return value
    text = str(value)
    if text in {"true", "false"}:
        return text == "true"
    if re.fullmatch(r"[-+]?\d+", text):
        return int(text)
    if re.fullmatch(r"[-+]?(\d+\.\d*|\.\d+)([eE][-+]?\d+)?", text):
        return float(text)
    return value


_takes_interpolation: Final = BeforeValidator(_typed_interpolation)

Flag = Annotated[bool, _takes_interpolation]
Count = Annotated[int, _takes_interpolation, Field(ge=0)]
PositiveCount = Annotated[int, _takes_interpolation, Field(ge=1)]
Number = Annotated[float, _takes_interpolation]


def _keep_text(value: Json) -> str:
    if isinstance(value, str):
        return value  # an Interpolated stays one: pydantic's own str would drop its seams
    raise PydanticCustomError("string_type", "Input should be a valid string", {"given": value})


def _keep_scalar(value: Json) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return _keep_text(value)


Template = Annotated[str, PlainValidator(_keep_text), WithJsonSchema({"type": "string"})]
"""Text that a template engine compiles later; see `gateway.config.text.parts_of`."""

ScalarTemplate = Annotated[str, PlainValidator(_keep_scalar), WithJsonSchema({"type": ["string", "number"]})]
"""A template where a bare number is taken as text: argv, environment, header fields, query and form fields."""


def _scaled(pattern: str, units: dict[str, float], *, kind: str, example: str) -> Callable[[Json], float]:
    regex = re.compile(pattern)

    def parse(value: Json) -> float:
        value = _typed_interpolation(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
            return value
        match = regex.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise PydanticCustomError(
                "scaled", "expected a {kind} such as {example}", {"kind": kind, "example": example}
            )
        return float(match[1]) * units[match[2]]

    return parse


_seconds = _scaled(
    r"(\d+(?:\.\d+)?)(ms|s|m|h)",
    {"ms": 0.001, "s": 1, "m": 60, "h": 3600},
    kind="duration",
    example="500ms, 30s, 15m or 2h (a bare number is seconds)",
)
_bytes = _scaled(
    r"(\d+(?:\.\d+)?)(B|KiB|MiB|GiB|kB|KB|MB|GB)",
    {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9},
    kind="size",
    example="64KiB or 10MB (a bare number is bytes)",
)

Duration = Annotated[
    timedelta,
    PlainValidator(lambda value: value if isinstance(value, timedelta) else timedelta(seconds=_seconds(value))),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "pattern": r"^\d+(\.\d+)?(ms|s|m|h)$"}, {"type": "number", "minimum": 0}]}
    ),
]
Size = Annotated[
    int,
    PlainValidator(lambda value: int(_bytes(value))),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": r"^\d+(\.\d+)?([KMG]iB|[kKMG]?B)$"},
                {"type": "integer", "minimum": 0},
            ]
        }
    ),
]


def one_or_many(value: Json) -> Json:
    """Let a list with one entry be written without its brackets."""
    return value if isinstance(value, list) else [value]
