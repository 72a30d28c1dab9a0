"""A prompt written as Markdown: front matter says what it asks for, the text below is one user message.

The text is a template over the arguments. `${…}` in it is left alone: it is prose, often about shells.
"""

import re
from dataclasses import dataclass
from typing import Final

from gateway.config.reading.composer import compose
from gateway.config.reading.nodes import START, Entry, Finding, Mapping, Node, Place, Point, Scalar, Sequence
from gateway.config.reading.source_file import SourceFile

_FENCE: Final = re.compile(r"---[ \t]*(?:\r\n|\n|\Z)")
_CLOSING_FENCE: Final = re.compile(r"^---[ \t]*(?:\r\n|\n|\Z)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PromptFile:
    """What one file says; `head` and `body` both know their lines."""

    head: Mapping | None
    """None if the front matter cannot be used; why is in `findings`."""
    body: Scalar
    findings: tuple[Finding, ...]

    @property
    def node(self) -> Mapping:
        """The file as the prompt that it stands for."""
        source, start = self.body.source, self.body.start
        message = Mapping({"user": Entry(source, start, self.body)}, source, start, is_flow=True, size=2)
        messages: Node = Sequence((message,), source, start, is_flow=True, size=3)
        entries = dict(self.head.entries) if self.head is not None else {}
        return Mapping({**entries, "messages": Entry(source, start, messages)}, source, start, is_flow=True, size=4)


def read_prompt(source: SourceFile) -> PromptFile:
    """Divide a Markdown file into front matter and text."""
    text = source.text
    opening = _FENCE.match(text)
    if opening is None:
        return _prompt(source, front="", body_start=0)
    closing = _CLOSING_FENCE.search(text, opening.end())
    if closing is None:
        unclosed = Finding(message="the front matter that begins here is never closed by `---`", place=_at(source, 0))
        return PromptFile(None, _body(source, len(text)), (unclosed,))
    return _prompt(source, front=text[opening.end() : closing.start()], body_start=closing.end())


def _prompt(source: SourceFile, *, front: str, body_start: int) -> PromptFile:
    composed = compose(source, front, first_line=1)
    findings = list(composed.findings)
    body = _body(source, body_start)
    head: Mapping | None = None
    if isinstance(composed.root, Mapping):
        head = composed.root
    elif composed.root is None and not findings:
        head = Mapping({}, source, START, is_flow=True, size=1)
    elif composed.root is not None:
        findings.append(Finding(message="front matter is a mapping (`key: value`)", place=_at(source, 1)))
    if not body.value:
        findings.append(Finding(message="has no text for the message", place=_at(source, body.start.line)))
    return PromptFile(head, body, tuple(findings))


def _body(source: SourceFile, start: int) -> Scalar:
    text = source.text[start:]
    skipped = len(text) - len(text.lstrip("\r\n"))
    lines_before = source.text.count("\n", 0, start + skipped)
    point = Point(lines_before, 0)
    return Scalar(text.strip("\r\n"), source, point, point)


def _at(source: SourceFile, line: int) -> Place:
    return Place(source, min(line, len(source.lines) - 1) + 1, 1)
