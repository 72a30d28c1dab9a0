"""Finds the place of a character of a text within the YAML that the text was written in. Pure."""

import re
from typing import Final

from gateway.config.reading.nodes import Place, Scalar, place_at

_BLOCK: Final = re.compile(r"[|>]([-+]?)([1-9]?)")
_ENOUGH: Final = 12
"""Characters that are compared, to see that the place is right."""


def place_in(scalar: Scalar, offset: int) -> Place:
    """The place of the character at `offset` of a scalar's text; the scalar's own where that cannot be told.

    It cannot where YAML's notation and the text differ: folded lines, escapes, interpolation.
    """
    text, lines = str(scalar.value), scalar.source.lines
    whole = place_at(scalar.source, scalar.start)
    row, column = text.count("\n", 0, offset), offset - (text.rfind("\n", 0, offset) + 1)
    line = scalar.start.line
    if line >= len(lines):
        return whole
    written = lines[line][scalar.start.column :]
    if _BLOCK.match(written):
        following = next((each for each in lines[line + 1 :] if each.strip()), "")
        first = next((each for each in text.split("\n") if each.strip()), "")
        line, column = line + 1 + row, column + following.find(first.rstrip())
    elif row:
        return whole
    else:
        column += scalar.start.column + written.startswith(("'", '"'))
    expected = text[offset : offset + _ENOUGH].split("\n", maxsplit=1)[0]
    is_there = line < len(lines) and column >= 0 and lines[line][column:].startswith(expected)
    return Place(scalar.source, line + 1, column + 1) if is_there else whole
