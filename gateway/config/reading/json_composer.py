"""Builds nodes with positions from JSON text. Comments and trailing commas are allowed (JSONC).

The YAML composer cannot be used, because YAML does not treat `// "old": {…}` as a comment.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

import orjson

from gateway.config.reading.composer import MAX_DEPTH
from gateway.config.reading.nodes import (
    Diagnostic,
    MapItem,
    Mapping,
    Node,
    Place,
    Scalar,
    Sequence,
)
from gateway.config.reading.source_file import LINE_BREAK, SourceFile, UnreadableError
from gateway.json_types import DocumentPath

_COMMENT: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|//[^\r\n]*|/\*(?:.*?\*/|.*)|\ufeff', re.DOTALL)
_COMMA: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|[{\[]\s*,|,(?=\s*[}\]])', re.DOTALL)
"""Matches trailing commas. The other alternatives match commas that must stay."""
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]|[^\s{}\[\],:"]+', re.DOTALL)


def compose_json(source: SourceFile) -> tuple[Node | None, list[Diagnostic]]:
    """Return the root of a file, which is None if the file is empty or invalid, and the errors.

    Duplicate keys are errors, because some programs use the first value and others the last.
    """
    # Blanks replace comments, so that positions stay the same.
    text = _COMMA.sub(_without_comma, _COMMENT.sub(_without_comment, source.text))
    if not text.strip():
        return None, []
    composer = _Composer(source, text)
    try:
        orjson.loads(text)
        return composer.node(next(composer.tokens), ()), composer.diagnostics
    except orjson.JSONDecodeError as error:
        return None, [Diagnostic(message=f"JSON syntax: {error.msg}", place=composer.place(error.pos))]
    except UnreadableError as error:
        return None, [Diagnostic(message=str(error), place=Place(source, error.line, error.column))]


def _without_comment(match: re.Match[str]) -> str:
    text = match[0]
    is_unclosed = text.startswith("/*") and not text.endswith("*/", 2)
    return text if text.startswith('"') or is_unclosed else re.sub(r"[^\r\n]", " ", text)


def _without_comma(match: re.Match[str]) -> str:
    return " " if match[0] == "," else match[0]


class _Composer:
    """Builds the nodes of valid JSON."""

    def __init__(self, source: SourceFile, text: str) -> None:
        self.diagnostics: list[Diagnostic] = []
        self.tokens: Iterator[re.Match[str]] = _TOKEN.finditer(text)
        """Brackets and scalars. Commas and colons are skipped, because keys and values alternate."""
        self._source = source
        self._lines = [0, *(found.end() for found in LINE_BREAK.finditer(source.text))]

    def node(self, token: re.Match[str], path: DocumentPath) -> Node:
        place = self.place(token.start())
        if len(path) > MAX_DEPTH:
            message = f"JSON syntax: nested deeper than {MAX_DEPTH} levels"
            raise UnreadableError(message, line=place.line, column=place.column)
        if token[0] == "{":
            entries: dict[str, MapItem] = {}
            while (token := next(self.tokens))[0] != "}":
                key, at = orjson.loads(token[0]), self.place(token.start())
                if key in entries:
                    message = f"`{key}` is written twice, first in line {entries[key].place.line}"
                    self.diagnostics.append(Diagnostic(message=message, path=(*path, key), place=at))
                entries[key] = MapItem(at, self.node(next(self.tokens), (*path, key)))
            return Mapping(entries, place, self.place(token.end()))
        if token[0] == "[":
            items: list[Node] = []
            while (token := next(self.tokens))[0] != "]":
                items.append(self.node(token, (*path, len(items))))
            return Sequence(tuple(items), place, self.place(token.end()))
        return Scalar(orjson.loads(token[0]), place, self.place(token.end()))

    def place(self, position: int) -> Place:
        line = bisect_right(self._lines, position)
        return Place(self._source, line, position - self._lines[line - 1] + 1)
