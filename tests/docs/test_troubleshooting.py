"""The messages in docs/troubleshooting.md are messages of the program."""

import ast
import re
from typing import Final

import pytest

from tests.structure import GATEWAY

PAGE: Final = (GATEWAY.parent / "docs" / "troubleshooting.md").read_text()
MESSAGES: Final = [message for _, message in re.findall(r"^### (`+) ?(.+?) ?\1$", PAGE, re.MULTILINE)]


def template_of(node: ast.AST) -> str:
    """Return the text of a literal with `…` for each value in it."""
    match node:
        case ast.Constant(value=str(text)):
            return re.sub(r"\{[a-z][a-z_.]*\}", "…", text)  # of `str.format`
        case ast.JoinedStr(values=values):
            return "".join(map(template_of, values))
        case ast.FormattedValue():
            return "…"
        case _:
            return ""


@pytest.fixture(scope="module")
def templates() -> str:
    trees = (ast.parse(path.read_text()) for path in GATEWAY.rglob("*.py"))
    return "\n".join(template_of(node) for tree in trees for node in ast.walk(tree))


def test_page_explains_forty_messages() -> None:
    assert len(MESSAGES) == PAGE.count("\n### ")
    assert len(MESSAGES) >= 40


@pytest.mark.parametrize("message", MESSAGES)
def test_gateway_raises_the_message(message: str, templates: str) -> None:
    assert re.search(r"\w{3}", message)
    assert message in templates
