"""Finds URI templates that can match the same URI. Pure.

A template is read as literal characters with gaps between them. Two of them overlap if they can be read side by side: a
gap may end at any point, or take in what the other template has next. Errs on the side of "yes": `{?var}` is not looked
at, and the other operators are taken for any text.

Why a trie: a file may have thousands of templates, and comparing each with each would take minutes. What templates have
in common at their beginning is compared once.
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import msgspec

from gateway.language.uris.grammar import UriExpression, UriTemplateError, parse_uri_template

_SEGMENT: Final = frozenset("/?#")
"""What a value of `{var}` cannot hold unencoded."""

_ANY_TEXT: Final[frozenset[str]] = frozenset()

_MOST_STEPS: Final = 1_000_000
"""How many steps all searches in one index may take together: some seconds. Only thousands of templates that begin with
the same `{+var}` need more."""

_Token: TypeAlias = str | frozenset[str]
"""One literal character; or a gap, which is any text without these characters."""


def overlap(one: str, other: str) -> bool:
    """Whether some URI is matched by both templates."""
    index = TemplateIndex()
    index.add(other)
    return index.first(one) is not None


class TemplateIndex:
    """A trie of URI templates in the order in which they were added."""

    def __init__(self, *, most_steps: int = _MOST_STEPS) -> None:
        self._root: Final = _Node(None, 0)
        self._count = 0
        self._steps_left = most_steps

    @property
    def is_exhausted(self) -> bool:
        """Whether a search took too long, so that nothing more is found."""
        return self._steps_left <= 0

    def add(self, template: str) -> None:
        node = self._root
        for token in _tokens(template):
            node = node.children.setdefault(token, _Node(token, self._count))
        if node.template is None:
            node.template = self._count
        self._count += 1

    def first(self, template: str) -> int | None:
        """The number, counted from 0, of the earliest template that overlaps with this one."""
        tokens, found = _tokens(template), self._count
        pending, seen = [(0, self._root)], {(0, id(self._root))}
        while pending and not self.is_exhausted:
            self._steps_left -= 1
            position, node = pending.pop()
            if position == len(tokens) and node.template is not None:
                found = min(found, node.template)
            for reached in _next(tokens, position, node):
                key = reached[0], id(reached[1])
                # Once a template is found, only those added before it matter.
                if reached[1].earliest < found and key not in seen:
                    seen.add(key)
                    pending.append(reached)
        # Nothing after a search that was cut short: an earlier template might have been found still.
        return found if found < self._count and not self.is_exhausted else None


class _Node(msgspec.Struct):
    token: _Token | None
    """None at the root."""
    earliest: int
    """Number of the first template that leads through this node."""
    children: dict[_Token, "_Node"] = msgspec.field(default_factory=dict)
    template: int | None = None
    """Number of the first template that ends here."""


def _next(tokens: Sequence[_Token], position: int, node: _Node) -> Iterator[tuple[int, _Node]]:
    """The next positions, in the tokens and in the trie. A gap in the trie takes in what comes next in the tokens."""
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
