"""Finds URI templates that can match the same URI.

A template is a sequence of literal characters and gaps. A gap can match any following characters of the other template.
False positives are possible: `{?var}` is ignored, and other operators match any text. A trie compares common prefixes
of many templates only once.
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import msgspec

from gateway.language.uris.grammar import UriExpression, UriTemplateError, parse_uri_template

_SEGMENT: Final = frozenset("/?#")
"""Characters that are encoded in values of `{var}`."""

_ANY_TEXT: Final[frozenset[str]] = frozenset()

_MOST_STEPS: Final = 1_000_000
"""Maximum steps of all searches in an index. Only thousands of similar templates need more."""

_Token: TypeAlias = str | frozenset[str]
"""A literal character, or a gap that matches text without these characters."""


def overlap(one: str, other: str) -> bool:
    index = TemplateIndex()
    index.add(other)
    return index.first(one) is not None


class TemplateIndex:
    def __init__(self, *, most_steps: int = _MOST_STEPS) -> None:
        self._root: Final = _Node(None, 0)
        self._count = 0
        self._steps_left = most_steps

    @property
    def is_exhausted(self) -> bool:
        """Whether the limit of steps was reached, so that searches find nothing."""
        return self._steps_left <= 0

    def add(self, template: str) -> None:
        node = self._root
        for token in _tokens(template):
            node = node.children.setdefault(token, _Node(token, self._count))
        if node.template is None:
            node.template = self._count
        self._count += 1

    def first(self, template: str) -> int | None:
        """Return the index of the first added template that overlaps, or None."""
        tokens, found = _tokens(template), self._count
        pending, seen = [(0, self._root)], {(0, id(self._root))}
        while pending and not self.is_exhausted:
            self._steps_left -= 1
            position, node = pending.pop()
            if position == len(tokens) and node.template is not None:
                found = min(found, node.template)
            for reached in _next(tokens, position, node):
                key = reached[0], id(reached[1])
                if reached[1].earliest < found and key not in seen:
                    seen.add(key)
                    pending.append(reached)
        # An interrupted search could have missed an earlier template.
        return found if found < self._count and not self.is_exhausted else None


class _Node(msgspec.Struct):
    token: _Token | None
    earliest: int
    children: dict[_Token, "_Node"] = msgspec.field(default_factory=dict)
    template: int | None = None
    """Index of the first template that ends at this node."""


def _next(tokens: Sequence[_Token], position: int, node: _Node) -> Iterator[tuple[int, _Node]]:
    """Yield the next pairs of a position in the tokens and a node."""
    token = tokens[position] if position < len(tokens) else None
    if token is not None and isinstance(node.token, frozenset) and token not in node.token:
        yield position + 1, node
    if isinstance(token, frozenset):
        yield position + 1, node
        for child in node.children.values():
            if child.token not in token:
                yield position, child
        return
    for gap, child in node.children.items():
        if isinstance(gap, frozenset):
            yield position, child
    if token is not None and token in node.children:
        yield position + 1, node.children[token]


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
            tokens.append(_gap(part))
    return tokens


def _gap(expression: UriExpression) -> frozenset[str]:
    return _ANY_TEXT if expression.operator else _SEGMENT
