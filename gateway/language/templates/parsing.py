"""Parses templates and expressions with Jinja. Interpolated text stays literal."""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import count
from typing import Final

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.parser import Parser

from gateway.config.models.interpolated_text import Interpolation, Part

_GRAMMAR: Final = Environment(keep_trailing_newline=True, autoescape=False)  # noqa: S701 - parses; nothing is rendered by it

# Possessive quantifiers, so that no text causes backtracking.
_NAMED: Final = re.compile(r"([^{]*+(?:\{(?![{%#])[^{]*+)*+)(?:\{\{[ \t]*([A-Za-z_][A-Za-z0-9_]*)[ \t]*\}\}|\Z)")
"""Text, followed by an expression that is a single name, or by the end."""
_CONSTANTS: Final = frozenset({"true", "false", "none", "True", "False", "None", "not"})
"""Words that are not names at the start of an expression."""


@lru_cache(maxsize=8192)
def parse_text(parts: tuple[Part, ...]) -> list[nodes.Node]:
    """Parse a template. The cached tree must not be changed.

    Raises:
        TemplateSyntaxError: the text is not a template.
    """
    if (named := _text_with_names(parts)) is not None:
        return [nodes.Output(named)]
    source, insert = _with_marks(parts)
    tree = _GRAMMAR.parse(source)
    insert(tree)
    return tree.body


@lru_cache(maxsize=8192)
def parse_expression(parts: tuple[Part, ...]) -> nodes.Expr:
    """Parse an expression without braces.

    Raises:
        TemplateSyntaxError: the text is not an expression.
    """
    source, insert = _with_marks(parts)
    parser = Parser(_GRAMMAR, source, state="variable")
    node = parser.parse_expression()
    if not parser.stream.eos:
        parser.fail("expected the end of the expression", parser.stream.current.lineno)
    # Wrapped in a node: `find_all` searches below a node, and the expression can be a single literal.
    insert(nodes.Output([node]))
    return node


def _text_with_names(parts: tuple[Part, ...]) -> list[nodes.Expr] | None:
    """Return Jinja's tree for text with only names in braces, about ten times faster. None for other templates."""
    found: list[nodes.Expr] = []
    text = ""
    for part in parts:
        if isinstance(part, Interpolation):
            text += part.text
            continue
        for literal, name in _texts_and_names(part):
            if name in _CONSTANTS or literal is None:
                return None
            text += literal
            if name is not None:
                found += [*([nodes.TemplateData(text)] if text else []), nodes.Name(name, "load")]
                text = ""
    return [*found, nodes.TemplateData(text)] if text else found


def _texts_and_names(text: str) -> Iterator[tuple[str | None, str | None]]:
    """Yield pairs of literal text and the name that follows. The text is None before other syntax."""
    end = 0
    while end < len(text):
        match = _NAMED.match(text, end)
        if match is None:
            yield None, None
            return
        yield match[1], match[2]
        end = match.end()


_MARKS: Final = tuple(map(chr, range(0xE000, 0xE010)))
"""Private-use characters that mark the number of a literal while Jinja parses."""


def _with_marks(parts: tuple[Part, ...]) -> tuple[str, Callable[[nodes.Node], None]]:
    """Return a source with a mark for each literal, and a function that inserts the literals into the parsed tree."""
    pieces = [
        piece for part in parts for piece in ([part] if isinstance(part, Interpolation) else _sparing_returns(part))
    ]
    literals = [piece.text for piece in pieces if isinstance(piece, Interpolation)]
    free = (mark for mark in _MARKS if not any(mark in piece for piece in pieces if isinstance(piece, str)))
    if (mark := next(free, None)) is None:
        raise TemplateSyntaxError("a template cannot contain all characters from U+E000 to U+E00F", lineno=1)
    numbers = count()
    source = "".join(f"{mark}{next(numbers)}{mark}" if isinstance(piece, Interpolation) else piece for piece in pieces)
    # Inserted into the tree, not the source, where a literal could end a quote or an expression.
    pattern = re.compile(f"{mark}([0-9]+){mark}")

    def insert(tree: nodes.Node) -> None:
        for data in tree.find_all(nodes.TemplateData):
            data.data = pattern.sub(lambda match: literals[int(match[1])], data.data)
        for const in tree.find_all(nodes.Const):
            if isinstance(const.value, str):
                const.value = pattern.sub(lambda match: literals[int(match[1])], const.value)

    return source, insert


def _sparing_returns(text: str) -> list[Part]:
    """Treat carriage returns as literals, because Jinja converts them to newlines."""
    return [Interpolation("\r", secret=False) if piece == "\r" else piece for piece in re.split("(\r)", text)]
