"""Splits Markdown files into front matter, between two lines of `---`, and body. Reads prompts from such files."""

import re
from typing import Final

import msgspec

from gateway.config.reading.composer import compose
from gateway.config.reading.nodes import START, Diagnostic, MapItem, Mapping, Node, Place, Point, Scalar, Sequence
from gateway.config.reading.source_file import SourceFile

_FENCE: Final = re.compile(r"---[ \t]*(?:\r\n|\n|\Z)")
_CLOSING_FENCE: Final = re.compile(r"^---[ \t]*(?:\r\n|\n|\Z)", re.MULTILINE)

UNCLOSED: Final = "the front matter that starts here is not closed by `---`"


class FrontMatter(msgspec.Struct, frozen=True):
    text: str
    """Text between the fences. Its first line is line 2 of the file."""
    body_start: int
    """Index of the first character after the front matter."""
    is_closed: bool = True


def front_matter(source: SourceFile) -> FrontMatter | None:
    """Return the front matter, or None if the file does not start with a fence."""
    text = source.text
    opening = _FENCE.match(text)
    if opening is None:
        return None
    closing = _CLOSING_FENCE.search(text, opening.end())
    if closing is None:
        return FrontMatter("", len(text), is_closed=False)
    return FrontMatter(text[opening.end() : closing.start()], closing.end())


class PromptFile(msgspec.Struct, frozen=True):
    """A prompt written in Markdown: its keys, and one user message. The message is not interpolated."""

    head: Mapping | None
    """None if the front matter is invalid."""
    body: Scalar
    diagnostics: tuple[Diagnostic, ...]

    @property
    def node(self) -> Mapping:
        source, start = self.body.source, self.body.start
        message = Mapping({"user": MapItem(source, start, self.body)}, source, start, is_flow=True, size=2)
        messages: Node = Sequence((message,), source, start, is_flow=True, size=3)
        entries = dict(self.head.entries) if self.head is not None else {}
        return Mapping({**entries, "messages": MapItem(source, start, messages)}, source, start, is_flow=True, size=4)


def read_prompt(source: SourceFile) -> PromptFile:
    front = front_matter(source)
    if front is None:
        return _prompt(source, front="", body_start=0)
    if not front.is_closed:
        unclosed = Diagnostic(message=UNCLOSED, place=_at(source, 0))
        return PromptFile(None, _body(source, front.body_start), (unclosed,))
    return _prompt(source, front=front.text, body_start=front.body_start)


def _prompt(source: SourceFile, *, front: str, body_start: int) -> PromptFile:
    # Line 0 is the fence.
    composed = compose(source, front, first_line=1)
    diagnostics = list(composed.diagnostics)
    body = _body(source, body_start)
    head: Mapping | None = None
    if isinstance(composed.root, Mapping):
        head = composed.root
    elif composed.root is None and not diagnostics:
        head = Mapping({}, source, START, is_flow=True, size=1)
    elif composed.root is not None:
        diagnostics.append(Diagnostic(message="front matter must be a mapping (`key: value`)", place=_at(source, 1)))
    if not body.value:
        diagnostics.append(Diagnostic(message="has no text for the message", place=_at(source, body.start.line)))
    return PromptFile(head, body, tuple(diagnostics))


def _body(source: SourceFile, start: int) -> Scalar:
    text = source.text[start:]
    skipped = len(text) - len(text.lstrip("\r\n"))
    lines_before = source.text.count("\n", 0, start + skipped)
    point = Point(lines_before, 0)
    return Scalar(text.strip("\r\n"), source, point, point)


def _at(source: SourceFile, line: int) -> Place:
    return Place(source, min(line, len(source.lines) - 1) + 1, 1)
