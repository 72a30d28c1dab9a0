"""Parses templates and expressions into Jinja's trees; what was interpolated stays a literal. Compiles nothing."""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import count
from typing import Final

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.parser import Parser

from gateway.config.models.interpolated_text import Interpolation, Part

_GRAMMAR: Final = Environment(keep_trailing_newline=True, autoescape=False)  # noqa: S701 - parses; nothing is rendered by it

# Possessive quantifiers: whatever the text, nothing is tried a second time.
_NAMED: Final = re.compile(r"([^{]*+(?:\{(?![{%#])[^{]*+)*+)(?:\{\{[ \t]*([A-Za-z_][A-Za-z0-9_]*)[ \t]*\}\}|\Z)")
"""Text, and behind it the end or an expression that is one name."""
_CONSTANTS: Final = frozenset({"true", "false", "none", "True", "False", "None", "not"})
"""Words that Jinja takes for something else than a name, where an expression begins with them."""


@lru_cache(maxsize=8192)
def parse_text(parts: tuple[Part, ...]) -> list[nodes.Node]:
    """Parse once what many places say: `{{ path }}`. The tree is read only.

    Raises:
        TemplateSyntaxError: it is not a template.
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
        TemplateSyntaxError: it is not an expression.
    """
    source, insert = _with_marks(parts)
    parser = Parser(_GRAMMAR, source, state="variable")
    node = parser.parse_expression()
    if not parser.stream.eos:
        parser.fail("expected the end of the expression", parser.stream.current.lineno)
    # In a node of its own: `find_all` looks below a node, and the expression may itself be one literal.
    insert(nodes.Output([node]))
    return node


def _text_with_names(parts: tuple[Part, ...]) -> list[nodes.Expr] | None:
    """The tree that Jinja makes of text in which names alone stand in braces, a tenth of its time; None for others."""
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
    """Yield each piece of text with the name behind it, if there is one; no text where something else stands there."""
    end = 0
    while end < len(text):
        match = _NAMED.match(text, end)
        if match is None:
            yield None, None
            return
        yield match[1], match[2]
        end = match.end()


_MARKS: Final = tuple(map(chr, range(0xE000, 0xE010)))
"""Private-use characters, one of which stands around the number of a literal while Jinja parses."""


def _with_marks(parts: tuple[Part, ...]) -> tuple[str, Callable[[nodes.Node], None]]:
    """Return a source with a mark for each literal, and what puts the literals into the parsed tree."""
    pieces = [
        piece for part in parts for piece in ([part] if isinstance(part, Interpolation) else _sparing_returns(part))
    ]
    literals = [piece.text for piece in pieces if isinstance(piece, Interpolation)]
    free = (mark for mark in _MARKS if not any(mark in piece for piece in pieces if isinstance(piece, str)))
    if (mark := next(free, None)) is None:
        raise TemplateSyntaxError("the characters U+E000 to U+E00F cannot all stand in one", lineno=1)
    numbers = count()
    source = "".join(f"{mark}{next(numbers)}{mark}" if isinstance(piece, Interpolation) else piece for piece in pieces)
    # Found again in the tree, not in the source: there a literal could end a quote or an expression.
    pattern = re.compile(f"{mark}([0-9]+){mark}")

    def insert(tree: nodes.Node) -> None:
        for data in tree.find_all(nodes.TemplateData):
            data.data = pattern.sub(lambda match: literals[int(match[1])], data.data)
        for const in tree.find_all(nodes.Const):
            if isinstance(const.value, str):
                const.value = pattern.sub(lambda match: literals[int(match[1])], const.value)

    return source, insert


def _sparing_returns(text: str) -> list[Part]:
    """Treat carriage returns as literals: Jinja would turn them into newlines."""
    return [Interpolation("\r", secret=False) if piece == "\r" else piece for piece in re.split("(\r)", text)]
