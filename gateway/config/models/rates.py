"""Rates such as `10/minute`, and whom they limit."""

import re
from typing import Annotated, Final

import msgspec
from pydantic import PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from gateway.config.models.base import Model, value_for
from gateway.json_types import Json

_SECONDS: Final = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_FORM: Final = re.compile(rf"([1-9][0-9]{{0,6}})/({'|'.join(_SECONDS)})")
_SCHEMA: Final = {"type": "string", "pattern": rf"^{_FORM.pattern}$"}


class ParsedRate(msgspec.Struct, frozen=True):
    """So many in any such time."""

    amount: int
    seconds: int

    def __str__(self) -> str:
        unit = next(unit for unit, seconds in _SECONDS.items() if seconds == self.seconds)
        return f"{self.amount}/{unit}"


def parse_rate(value: Json) -> ParsedRate:
    """Raises: PydanticCustomError: it is none."""
    if isinstance(value, ParsedRate):
        return value
    match = _FORM.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise PydanticCustomError("form", "expected a rate such as 10/minute (second, minute, hour or day)")
    return ParsedRate(int(match[1]), _SECONDS[match[2]])


Rate = Annotated[ParsedRate, PlainValidator(parse_rate), WithJsonSchema(_SCHEMA)]


class RateLimit(Model):
    """Limits of how often calls may begin. A rate alone, such as 10/minute, is `per_caller`."""

    per_caller: Rate | None = None
    """Calls of one caller."""
    in_all: Rate | None = None
    """Calls of all callers together."""


WrittenRateLimit = Annotated[RateLimit, value_for("per_caller", _SCHEMA)]
"""A rate, or for whom which rate holds."""
