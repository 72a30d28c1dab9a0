"""Rewords errors of YAML's scanner and parser for authors of configuration files."""

from typing import Final

import yaml

from gateway.config.reading.nodes import Mark
from gateway.config.reading.source_file import LINE_BREAK

_ADVICE: Final = (
    # A part of the scanner's message → our message.
    ("mapping values are not allowed", "a second `: ` in one line; quote the text that contains it"),
    ("cannot start any token", "text cannot start with this character; quote it"),
    ("found unexpected end of stream", "the quote opened here is never closed"),
    ("found unexpected document indicator", "the quote opened here is never closed"),
    ("did not find expected node content", "expected a value"),
    ("found unknown escape character", "unknown escape in double quotes; use single quotes, or double the \\"),
    ("expected ',' or ']'", "expected `,` or `]` in the list opened"),
    ("expected ',' or '}'", "expected `,` or `}` in the mapping opened"),
    ("expected key", "this line does not match any open level; check its indentation"),
    ("expected <block end>", "this line does not match any open level; check its indentation"),
    ("expected '-' indicator", "expected another item of the list (`- …`); check the indentation"),
    ("could not find expected ':'", "expected `key: value`; a `:` is missing"),
    ("incompatible YAML document", "this YAML version is not supported; remove the %YAML line"),
)

_DEEPER: Final = "this line continues the text above it because it is indented deeper; check its indentation"


def explain(error: yaml.MarkedYAMLError, text: str, *, first_line: int) -> tuple[str, Mark | None]:
    """Return the message and mark of an error. `text` starts at line `first_line` (from 0) of its file."""
    problem, opened = error.problem or "cannot be read", error.context_mark
    before, character = _around(error.problem_mark, text)
    if "cannot start any token" in problem and character == "\t":
        return "a tab cannot indent; use spaces", error.problem_mark
    # Without another `: ` before it, this line continues the text of the line above.
    if "mapping values are not allowed" in problem and ": " not in before:
        return _DEEPER, error.problem_mark
    advice = next((ours for theirs, ours in _ADVICE if theirs in problem), problem)
    if opened is not None and advice.endswith(" opened"):
        advice += f" at {opened.line + 1 + first_line}:{opened.column + 1}"
    # The scanner reports the end of the file, but the error is at the opening quote.
    is_quote = "opened here" in advice
    return advice, opened if is_quote and opened is not None else error.problem_mark or opened


def _around(mark: Mark | None, text: str) -> tuple[str, str]:
    """Return the text before a mark in its line, and the character at the mark."""
    lines = LINE_BREAK.split(text)
    if mark is None or mark.line >= len(lines):
        return "", ""
    line = lines[mark.line]
    return line[: mark.column], line[mark.column : mark.column + 1]
