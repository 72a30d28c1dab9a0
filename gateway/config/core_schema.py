"""Converts unquoted YAML scalars to JSON values, as in the core schema (YAML 1.2 §10.3.2)."""

import math
import re
from typing import Final

_CONSTANTS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBER: Final = re.compile(
    r"(?P<decimal>[-+]?[0-9]+)|0o(?P<octal>[0-7]+)|0x(?P<hexadecimal>[0-9a-fA-F]+)"
    r"|(?P<float>[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?)"
    r"|(?P<special>[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))"
)
_NUMBER_STARTS: Final = frozenset("-+.0123456789")


def scalar(text: str) -> bool | int | float | str | None:
    """Return the value of an unquoted scalar.

    Raises:
        ValueError: the scalar is a number that JSON cannot represent.
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in _NUMBER_STARTS or (match := _NUMBER.fullmatch(text)) is None:
        return text
    if match["special"]:
        raise ValueError(f"`{text}` is not a valid JSON number. Quote it if it is text")
    if match["float"]:
        number = float(text)
        if math.isinf(number):
            raise ValueError("this number is too large. Quote it if it is text")
        return number
    digits = match["decimal"] or match["octal"] or match["hexadecimal"]
    base = 8 if match["octal"] else 16 if match["hexadecimal"] else 10
    # `int` takes quadratic time, and larger numbers are rejected anyway.
    integer = int(digits, base) if len(digits) <= 64 else 2**64
    if not -(2**63) <= integer < 2**64:
        raise ValueError("this number does not fit into 64 bits. Quote it if it is text")
    return integer
