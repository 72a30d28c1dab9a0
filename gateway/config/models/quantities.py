"""Durations, sizes and rates: `30s`, `64KiB`, `10/minute`. Bare numbers are seconds or bytes."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Final

import msgspec
from pydantic import AfterValidator, Field, PlainValidator, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError

from gateway.config.models.base import INTERPOLATION_SCHEMA, Model, requires, typed_interpolation, value_for
from gateway.json_types import Json


def _scaled(
    pattern: str, units: dict[str, float], *, expected: str, at_most: float
) -> tuple[Callable[[Json], float], JsonSchemaValue]:
    """Return the parser and the schema of a number with a unit. Group 2 of `pattern` must be the unit."""
    regex = re.compile(pattern)

    def parse(value: Json) -> float:
        value = typed_interpolation(value)
        match = regex.fullmatch(value) if isinstance(value, str) else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            amount: float = value
        elif match is not None:
            amount = float(value.removesuffix(match[2])) * units[match[2]]
        else:
            # rejected below, because it is outside of every range
            amount = -1
        if not 0 <= amount <= at_most:
            raise PydanticCustomError("scaled", "expected {expected}", {"expected": expected})
        return amount

    text, number = {"type": "string", "pattern": f"^{pattern}$"}, {"type": "number", "minimum": 0, "maximum": at_most}
    return parse, {"anyOf": [text, number, INTERPOLATION_SCHEMA]}


_seconds, DURATION_SCHEMA = _scaled(
    r"\d{1,12}(\.\d{1,9})?(ms|s|m|h)",
    {"ms": 0.001, "s": 1, "m": 60, "h": 3600},
    expected="a duration such as 500ms, 30s, 15m or 2h (a bare number is seconds)",
    at_most=10 * 366 * 86_400,
)
_bytes, SIZE_SCHEMA = _scaled(
    r"\d{1,12}(\.\d{1,9})?([KMG]iB|[kKMG]?B)",
    {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9},
    expected="a size such as 64KiB or 10MB (a bare number is bytes)",
    at_most=2**50,
)
Duration = Annotated[
    timedelta,
    PlainValidator(lambda value: value if isinstance(value, timedelta) else timedelta(seconds=_seconds(value))),
    WithJsonSchema(DURATION_SCHEMA),
]
Size = Annotated[int, PlainValidator(lambda value: int(_bytes(value))), WithJsonSchema(SIZE_SCHEMA)]


def _no_less_than_a_millisecond(value: timedelta) -> timedelta:
    if value < timedelta(milliseconds=1):
        raise PydanticCustomError("zero_duration", "must be at least 1ms")
    return value


PositiveDuration = Annotated[Duration, AfterValidator(_no_less_than_a_millisecond)]
PositiveSize = Annotated[Size, Field(ge=1)]


def duration_text(value: timedelta) -> str:
    """Format a duration such as `1h`, `90s` or `250ms`."""
    seconds = value.total_seconds()
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:g}s" if seconds >= 1 or not seconds else f"{seconds * 1000:g}ms"


def size_text(value: int) -> str:
    """Format a size such as `5MiB`, `1.5KiB` or `17B`, with up to four digits."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value}B"


_RATE_UNITS: Final = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_RATE: Final = re.compile(rf"([1-9][0-9]{{0,6}})/({'|'.join(_RATE_UNITS)})")
RATE_SCHEMA: Final[JsonSchemaValue] = {"type": "string", "pattern": rf"^{_RATE.pattern}$"}


class ParsedRate(msgspec.Struct, frozen=True):
    """A number of calls per period."""

    amount: int
    seconds: int

    def __str__(self) -> str:
        unit = next(unit for unit, seconds in _RATE_UNITS.items() if seconds == self.seconds)
        return f"{self.amount}/{unit}"


def parse_rate(value: Json) -> ParsedRate:
    """Parse a rate such as `10/minute`. Raise PydanticCustomError if the value is not a rate."""
    if isinstance(value, ParsedRate):
        return value
    match = _RATE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise PydanticCustomError("form", "expected a rate such as 10/minute (second, minute, hour or day)")
    return ParsedRate(int(match[1]), _RATE_UNITS[match[2]])


Rate = Annotated[ParsedRate, PlainValidator(parse_rate), WithJsonSchema(RATE_SCHEMA)]


class RateLimit(Model):
    """Rate limits. Plain text such as 10/minute means `per_caller`."""

    per_caller: Rate | None = None
    """Calls of one caller."""
    in_all: Rate | None = None
    """Calls of all callers together."""
    key: str | None = None
    """A template that reads `caller`. Callers with the same value share `per_caller`."""

    _check_key = requires("key", "per_caller")


WrittenRateLimit = Annotated[RateLimit, value_for("per_caller", RATE_SCHEMA)]
"""A rate, or a mapping with `per_caller` and `in_all`."""
