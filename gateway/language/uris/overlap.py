"""Compares URI templates.

A template is a sequence of literal characters and gaps. A gap can match any following characters of the other template.
False positives are possible: `{?var}` is ignored, and other operators match any text.
"""

from collections.abc import Iterator
from typing import Final

from gateway.language.uris.grammar import UriTemplateError, parse_uri_template

_SEGMENT: Final = frozenset("/?#")
"""Characters that are encoded in values of `{var}`."""

_ANY_TEXT: Final[frozenset[str]] = frozenset()

_Token = str | frozenset[str]
"""A literal character, or a gap that matches text without these characters."""


def overlap(one: str, other: str) -> bool:
    """Return whether two templates can match the same URI."""
    leads = one.partition("{")[0], other.partition("{")[0]
    if not (leads[0].startswith(leads[1]) or leads[1].startswith(leads[0])):
        return False
    first, second = _tokens(one), _tokens(other)
    pending, seen = [(0, 0)], {(0, 0)}
    while pending:
        at = pending.pop()
        if at == (len(first), len(second)):
            return True
        reached = set(_next(first[at[0] : at[0] + 1], second[at[1] : at[1] + 1], *at)) - seen
        seen |= reached
        pending += reached
    return False


def _next(first: list[_Token], second: list[_Token], i: int, j: int) -> Iterator[tuple[int, int]]:
    """Yield the next positions, given the token at each position, if any."""
    if first and isinstance(first[0], frozenset):
        yield i + 1, j
        if second and second[0] not in first[0]:
            yield i, j + 1
    if second and isinstance(second[0], frozenset):
        yield i, j + 1
        if first and first[0] not in second[0]:
            yield i + 1, j
    if first and first == second:
        yield i + 1, j + 1


def _tokens(template: str) -> list[_Token]:
    tokens: list[_Token] = []
    try:
        parts = parse_uri_template(template)
    except UriTemplateError:  # from an upstream
        text, brace, _ = template.partition("{")
        return [*text, *([_ANY_TEXT] if brace else [])]
    for part in parts:
        if isinstance(part, str):
            tokens.extend(part)
        elif part.operator != "?":
            tokens.append(_ANY_TEXT if part.operator else _SEGMENT)
    return tokens
