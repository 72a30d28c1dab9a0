"""Reads prompts from Markdown files, which can start with front matter between two lines of `---`."""

import re
from typing import Final

from gateway.config.reading.composer import compose
from gateway.config.reading.nodes import Diagnostic, MapItem, Mapping, Place, Scalar, Sequence
from gateway.config.reading.source_file import SourceFile, UnreadableError

_FENCE: Final = re.compile(r"---[ \t]*(?:\r\n|\n|\Z)")
_CLOSING_FENCE: Final = re.compile(r"^---[ \t]*(?:\r\n|\n|\Z)", re.MULTILINE)


def front_matter(source: SourceFile) -> tuple[str, int] | None:
    """Return the front matter without its `---` lines, and the index in the file at which the body starts.

    Return None for a file without front matter.

    Raises:
        UnreadableError: the closing `---` is missing.
    """
    text = source.text
    opening = _FENCE.match(text)
    if opening is None:
        return None
    closing = _CLOSING_FENCE.search(text, opening.end())
    if closing is None:
        raise UnreadableError("the front matter that starts here is not closed by `---`")
    return text[opening.end() : closing.start()], closing.end()


def read_prompt(source: SourceFile) -> tuple[Mapping | None, Scalar, list[Diagnostic]]:
    """Return the keys of a prompt, the text of its user message, and the problems of the file.

    The keys are None if the front matter is invalid. The text is not interpolated.
    """
    try:
        text, start = front_matter(source) or ("", 0)
    except UnreadableError as error:
        return None, _body(source, len(source.text)), [Diagnostic(message=str(error), place=_at(source, 1))]
    body = _body(source, start)
    # Line 0 is the fence.
    head, diagnostics = compose(source, text, first_line=1)
    if head is None and not diagnostics:
        head = Mapping({}, _at(source, 1), _at(source, 1))
    elif head is not None and not isinstance(head, Mapping):
        diagnostics.append(Diagnostic(message="front matter must be a mapping (`key: value`)", place=_at(source, 2)))
        head = None
    if not body.value:
        diagnostics.append(Diagnostic(message="has no text for the message", place=_at(source, body.place.line)))
    return head, body, diagnostics


def prompt_node(head: Mapping | None, body: Scalar) -> Mapping:
    """Return the prompt as a node in the format of `prompts` in YAML files."""
    start = body.place
    message = Mapping({"user": MapItem(start, body)}, start, start)
    messages = MapItem(start, Sequence((message,), start, start))
    return Mapping({**(head.entries if head is not None else {}), "messages": messages}, start, start)


def _body(source: SourceFile, start: int) -> Scalar:
    text = source.text[start:]
    skipped = len(text) - len(text.lstrip("\r\n"))
    place = Place(source, source.text.count("\n", 0, start + skipped) + 1, 1)
    return Scalar(text.strip("\r\n"), place, place)


def _at(source: SourceFile, line: int) -> Place:
    return Place(source, min(line, len(source.lines)), 1)
