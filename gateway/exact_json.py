"""Reads and writes JSON whose integers have more than 64 bits: orjson reads a float in their place, and writes none.

RFC 8259 §6: whoever reads JSON may bound the range of numbers. What must not happen is that one number becomes another.
"""

import json
import re
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
    """Read JSON with integers of any length.

    Raises:
        orjson.JSONDecodeError: it is not JSON, or nested too deep to be read exactly.
    """
    value = orjson.loads(data)
    if large_integer(data) is None:
        return value
    try:
        return json.loads(data)
    except (RecursionError, ValueError) as error:
        raise orjson.JSONDecodeError(f"cannot be read exactly: {error}", "", 0) from error


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
        return orjson.dumps(_with_fragments(value), default=default, option=option)
    except RecursionError as error:
        raise orjson.JSONEncodeError(f"nested too deep: {error}") from error
    except ValueError as error:
        raise orjson.JSONEncodeError(f"an integer is too long: {error}") from error


def large_integer(data: bytes | str) -> str | None:
    """The first integer in a JSON text that has more than 64 bits; None, quickly, in nearly every text."""
    raw = data.encode() if isinstance(data, str) else data
    if raw.translate(_AS_ZERO).find(_LONG_RUN) < 0:  # `in` takes bytes for a number first, at the price of an error
        return None
    tokens = (match[0] for match in _STRING_OR_NUMBER.finditer(raw))
    return next((token.decode() for token in tokens if _is_large(token)), None)


def _is_large(token: bytes) -> bool:
    if len(token) < len(_LONG_RUN) or not token.removeprefix(b"-").isdigit():
        return False
    return len(token) > len(str(_SMALLEST)) or not _SMALLEST <= int(token) <= _MAX_LENGTH


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
