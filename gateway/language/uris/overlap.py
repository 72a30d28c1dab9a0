"""Finds URI templates that can match the same URI.

A template is a sequence of literal characters and gaps. Two templates overlap if their sequences can be aligned: a gap
ends at any point, or includes the next characters of the other template. False positives are possible, because `{?var}`
is ignored, and other operators count as any text.

A file can have thousands of templates. A trie compares their common prefixes only once.
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import msgspec

from gateway.language.uris.grammar import UriExpression, UriTemplateError, parse_uri_template

_SEGMENT: Final = frozenset("/?#")
"""Characters that a value of `{var}` cannot contain unencoded."""

_ANY_TEXT: Final[frozenset[str]] = frozenset()

_MOST_STEPS: Final = 1_000_000
"""Maximum steps of all searches in one index. Only thousands of templates with equal starts need more."""

_Token: TypeAlias = str | frozenset[str]
"""One literal character, or a gap: text without these characters."""


def overlap(one: str, other: str) -> bool:
    """Whether a URI can match both templates."""
    index = TemplateIndex()
    index.add(other)
    return index.first(one) is not None


class TemplateIndex:
    """A trie of URI templates, in order of addition."""

    def __init__(self, *, most_steps: int = _MOST_STEPS) -> None:
        self._root: Final = _Node(None, 0)
        self._count = 0
        self._steps_left = most_steps

    @property
    def is_exhausted(self) -> bool:
        """Whether the limit of steps was reached. Later searches find nothing."""
        return self._steps_left <= 0

    def add(self, template: str) -> None:
        node = self._root
        for token in _tokens(template):
            node = node.children.setdefault(token, _Node(token, self._count))
        if node.template is None:
            node.template = self._count
        self._count += 1

    def first(self, template: str) -> int | None:
        """Return the index of the earliest template that overlaps with this one, counted from 0."""
        tokens, found = _tokens(template), self._count
        pending, seen = [(0, self._root)], {(0, id(self._root))}
        while pending and not self.is_exhausted:
            self._steps_left -= 1
            position, node = pending.pop()
            if position == len(tokens) and node.template is not None:
                found = min(found, node.template)
            for reached in _next(tokens, position, node):
                key = reached[0], id(reached[1])
                # Only earlier templates matter once one is found.
                if reached[1].earliest < found and key not in seen:
                    seen.add(key)
                    pending.append(reached)
        # An interrupted search has no result, because it could have missed an earlier template.
        return found if found < self._count and not self.is_exhausted else None


class _Node(msgspec.Struct):
    token: _Token | None
    """None for the root."""
    earliest: int
    """Index of the first template through this node."""
    children: dict[_Token, "_Node"] = msgspec.field(default_factory=dict)
    template: int | None = None
    """Index of the first template that ends here."""


def _next(tokens: Sequence[_Token], position: int, node: _Node) -> Iterator[tuple[int, _Node]]:
    """Yield the next positions in the tokens and in the trie. A gap in the trie includes the next token."""
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
    except UriTemplateError:  # another server's
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
