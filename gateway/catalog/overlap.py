"""Whether two URI templates can match the same URI. Pure.

Both are read as literals with gaps between them, side by side: a gap may end at any point, or take in what the other
template has next. Errs on the side of "yes": `{?var}` is not looked at, and the other operators are taken for any text.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

from gateway.executors.uris.grammar import Expression, parse_uri_template

_SEGMENT: Final = frozenset("/?#")
"""What a value of `{var}` cannot hold unencoded."""

_Token: TypeAlias = str | frozenset[str]
"""One literal character; or a gap, which is any text without these characters."""


def overlap(one: str, other: str) -> bool:
    """Whether some URI is matched by both templates, which are well-formed."""
    left, right = _tokens(one), _tokens(other)
    pending, seen = [(0, 0)], {(0, 0)}
    while pending:
        i, j = pending.pop()
        if i == len(left) and j == len(right):
            return True
        for place in _next(left[i : i + 1], right[j : j + 1]):
            reached = (i + place[0], j + place[1])
            if reached not in seen:
                seen.add(reached)
                pending.append(reached)
    return False


def _next(left: Sequence[_Token], right: Sequence[_Token]) -> Sequence[tuple[int, int]]:
    """How far to go on in each, given what comes next there: nothing, a character or a gap."""
    steps = []
    for here, there, ahead, beside in ((left, right, (1, 0), (0, 1)), (right, left, (0, 1), (1, 0))):
        if here and isinstance(here[0], frozenset):
            steps.append(ahead)
            if there and not (isinstance(there[0], str) and there[0] in here[0]):
                steps.append(beside)
    if left and left == right and isinstance(left[0], str):
        steps.append((1, 1))
    return steps


def _tokens(template: str) -> list[_Token]:
    tokens: list[_Token] = []
    for part in parse_uri_template(template):
        if isinstance(part, str):
            tokens.extend(part)
        elif part.operator != "?":
            tokens.append(_gap(part))
    return tokens


def _gap(expression: Expression) -> frozenset[str]:
    return frozenset() if expression.operator else _SEGMENT
