"""Reads and writes JSON whose integers have more than 64 bits: orjson reads a float in their place, and writes none.

RFC 8259 §6: whoever reads JSON may bound the range of numbers. What must not happen is that one number becomes another.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import orjson

from gateway.json_types import Json

_AS_ZERO: Final = bytes.maketrans(b"0123456789", b"0" * 10)
_LONG_RUN: Final = b"0" * 19
"""No number of fewer digits has more than 64 bits."""


def loads(data: bytes | str) -> Json:
    """Read JSON with integers of any length that Python reads (`sys.set_int_max_str_digits`: 4300 digits).

    Raises:
        orjson.JSONDecodeError: it is not JSON, has a longer integer, or is nested too deep to be read exactly.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if "infinity" not in error.msg:  # that is an integer of more digits than a float has room for
            raise
    else:
        raw = data.encode() if isinstance(data, str) else data
        # With all digits made equal, one search finds a long run of any.
        if raw.translate(_AS_ZERO).find(_LONG_RUN) < 0:  # `in` takes bytes for a number first, at the price of an error
            return value
    try:
        return msgspec.json.decode(data)
    except RecursionError as error:
        raise orjson.JSONDecodeError("nested too deep for its integers to be read exactly", "", 0) from error
    except (msgspec.DecodeError, ValueError) as error:
        raise orjson.JSONDecodeError(str(error), "", 0) from error


def dumps(value: Json, *, default: Callable[[Json], Json] | None = None, option: int | None = None) -> bytes:
    """Write JSON as `orjson.dumps` does, and integers of any length.

    Raises:
        TypeError: the value is not JSON, is nested too deep, or has an integer of more digits than `str` writes (see
            `sys.set_int_max_str_digits`), or one of more than 64 bits beside a number that JSON lacks.
    """
    try:
        return orjson.dumps(value, default=default, option=option)
    except TypeError as error:
        # orjson has one TypeError for all: its words alone tell a long integer from what is no JSON.
        if "64-bit" not in str(error):
            raise
    try:
        text = json.dumps(
            value,
            default=default,
            ensure_ascii=False,
            allow_nan=False,
            separators=(",", ":"),
            sort_keys=bool((option or 0) & orjson.OPT_SORT_KEYS),
        )
        return text.encode()
    except RecursionError as error:
        raise orjson.JSONEncodeError(f"nested too deep: {error}") from error
    except ValueError as error:
        raise orjson.JSONEncodeError(str(error)) from error


def non_finite(value: Json) -> str | None:
    """The first number in a value that JSON lacks, and its place: `nan at /rows/0/price`; None if there is none.

    orjson writes null in its place (RFC 8259 §6: infinities and NaN are not permitted).
    """
    # A stack of its own, because a value may be nested deeper than Python's.
    waiting: list[tuple[str, Json]] = [("", value)]
    while waiting:
        place, found = waiting.pop()
        match found:
            case float() if not math.isfinite(found):
                return f"{found} at {place}" if place else str(found)
            case Mapping():
                # Reversed, so that the first of the document is found first.
                waiting += reversed([(f"{place}/{name}", member) for name, member in found.items()])
            case list() | tuple():
                waiting += reversed([(f"{place}/{index}", item) for index, item in enumerate(found)])
    return None
