"""Reads and writes JSON with integers of more than 64 bits, which orjson reads as floats and cannot write."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import orjson

from gateway.json_types import Json

_AS_ZERO: Final = bytes.maketrans(b"0123456789", b"0" * 10)
_LONG_RUN: Final = b"0" * 19
"""Integers with fewer digits fit into 64 bits."""


def loads(data: bytes | str) -> Json:
    """Decode JSON with integers of up to 4300 digits (`sys.set_int_max_str_digits`).

    Raises:
        orjson.JSONDecodeError: `data` is not JSON, contains a longer integer, or is nested too deeply.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if "infinity" not in error.msg:  # an integer too large for a float
            raise
    else:
        raw = data.encode() if isinstance(data, str) else data
        # Replace all digits by zeros, to find any long number with one search.
        if raw.translate(_AS_ZERO).find(_LONG_RUN) < 0:  # `in` is slower
            return value
    try:
        return msgspec.json.decode(data)
    except RecursionError as error:
        raise orjson.JSONDecodeError("nested too deeply to read integers of more than 64 bits", "", 0) from error
    except (msgspec.DecodeError, ValueError) as error:
        raise orjson.JSONDecodeError(str(error), "", 0) from error


def dumps(value: Json, *, default: Callable[[Json], Json] | None = None, option: int | None = None) -> bytes:
    """Encode JSON like `orjson.dumps`, but with integers of up to 4300 digits.

    Raise TypeError if the value is not JSON, is nested too deeply, or has an integer of more than 4300 digits.
    """
    try:
        return orjson.dumps(value, default=default, option=option)
    except TypeError as error:
        # orjson raises TypeError for all errors.
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
        raise orjson.JSONEncodeError(f"nested too deeply: {error}") from error
    except ValueError as error:
        raise orjson.JSONEncodeError(str(error)) from error


def non_finite(value: Json) -> str | None:
    """Describe the first NaN or infinity in a value with its JSON Pointer, such as `nan at /rows/0/price`."""
    # Not recursive, because values can be nested deeper than Python's stack.
    waiting: list[tuple[str, Json]] = [("", value)]
    while waiting:
        place, found = waiting.pop()
        match found:
            case float() if not math.isfinite(found):
                return f"{found} at {place}" if place else str(found)
            case Mapping():
                # Push the members in reverse, so that the first member is popped first.
                waiting += reversed([(f"{place}/{name}", member) for name, member in found.items()])
            case list() | tuple():
                waiting += reversed([(f"{place}/{index}", item) for index, item in enumerate(found)])
    return None
