"""Reads and writes JSON whose integers have more than 64 bits: orjson reads a float in their place, and writes none.

RFC 8259 §6: whoever reads JSON may bound the range of numbers. What must not happen is that one number becomes another.
"""

import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from typing import Final

import orjson

from gateway.json_types import Json

_SMALLEST: Final = -(2**63)
_MAX_LENGTH: Final = 2**64 - 1
"""What orjson reads and writes as an integer."""

_AS_ZERO: Final = bytes.maketrans(b"0123456789", b"0" * 10)
_LONG_RUN: Final = b"0" * 19
"""No number of fewer digits is out of range."""
_STRING_OR_NUMBER: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|-?[0-9][0-9.eE+-]*+', re.DOTALL)


def loads(data: bytes | str) -> Json:
    """Read JSON with integers of any length that Python reads (`sys.set_int_max_str_digits`: 4300 digits).

    Raises:
        orjson.JSONDecodeError: it is not JSON, has a longer integer, or is nested too deep to be read exactly.
    """
    try:
        value = orjson.loads(data)
        if not _has_large_integer(_raw(data)):
            return value
    except orjson.JSONDecodeError as error:
        if "infinity" not in error.msg:
            raise
        orjson.loads(_STRING_OR_NUMBER.sub(_shortened, _raw(data)))  # of more digits than a float has room for
    try:
        return json.loads(data)
    except RecursionError as error:
        raise orjson.JSONDecodeError("nested too deep for its integers to be read exactly", "", 0) from error
    except ValueError as error:
        raise orjson.JSONDecodeError(f"an integer of more than {sys.get_int_max_str_digits()} digits", "", 0) from error


def dumps(value: Json, *, default: Callable[[Json], Json] | None = None, option: int | None = None) -> bytes:
    """Write JSON as `orjson.dumps` does, and integers of any length.

    Raises:
        TypeError: the value is not JSON, is nested too deep, or has an integer of more digits than `str` writes (see
            `sys.set_int_max_str_digits`).
    """
    try:
        return orjson.dumps(value, default=default, option=option)
    except TypeError as error:
        if "64-bit" not in str(error):
            raise
    try:
        return orjson.dumps(_with_fragments(value), default=default and _then_fragments(default), option=option)
    except RecursionError as error:
        raise orjson.JSONEncodeError(f"nested too deep: {error}") from error
    except ValueError as error:
        raise orjson.JSONEncodeError(f"an integer is too long: {error}") from error


def non_finite(value: Json) -> str | None:
    """The first number in a value that JSON lacks, and its place: `nan at /rows/0/price`; None if there is none.

    orjson writes null in its place (RFC 8259 §6: infinities and NaN are not permitted).
    """
    waiting: list[tuple[str, Json]] = [("", value)]
    while waiting:
        place, found = waiting.pop()
        match found:
            case float() if not math.isfinite(found):
                return f"{found} at {place}" if place else str(found)
            case Mapping():
                waiting += reversed([(f"{place}/{name}", member) for name, member in found.items()])
            case list() | tuple():
                waiting += reversed([(f"{place}/{index}", item) for index, item in enumerate(found)])
    return None


def _raw(data: bytes | str) -> bytes:
    return data.encode() if isinstance(data, str) else data


def _shortened(token: re.Match[bytes]) -> bytes:
    return b"0" if _is_large(token[0]) else token[0]


def _has_large_integer(raw: bytes) -> bool:
    """Whether an integer in a JSON text has more than 64 bits; False, quickly, of nearly every text."""
    if raw.translate(_AS_ZERO).find(_LONG_RUN) < 0:  # `in` takes bytes for a number first, at the price of an error
        return False
    return any(_is_large(match[0]) for match in _STRING_OR_NUMBER.finditer(raw))


def _is_large(token: bytes) -> bool:
    if len(token) < len(_LONG_RUN) or not token.removeprefix(b"-").isdigit():
        return False
    return len(token) > len(str(_SMALLEST)) or not _SMALLEST <= int(token) <= _MAX_LENGTH


def _then_fragments(default: Callable[[Json], Json]) -> Callable[[Json], Json]:
    return lambda value: _with_fragments(default(value))


def _with_fragments(value: Json) -> Json:
    match value:
        case int() if not _SMALLEST <= value <= _MAX_LENGTH:
            return orjson.Fragment(str(value))
        case Mapping():
            return {name: _with_fragments(member) for name, member in value.items()}
        case list() | tuple():
            return [_with_fragments(item) for item in value]
        case _:
            return value
