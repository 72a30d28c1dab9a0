"""Builds nodes with positions from JSON text. Comments and trailing commas are allowed (JSONC).

The YAML composer cannot be used, because YAML does not treat `// "old": {…}` as a comment.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NoReturn

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

# Editors on Windows can write U+FEFF at the start of a file.
_SKIPPED: Final = re.compile(r"(?:[ \t\r\n\ufeff]|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"/]+', re.DOTALL)


def compose_json(source: SourceFile) -> tuple[Node | None, list[Diagnostic]]:
    """Return the root of a file, which is None if the file is empty or invalid, and the errors.

    Duplicate keys are errors, because some programs use the first value and others the last.
    """
    composer = _Composer(source)
    try:
        return composer.document(), composer.diagnostics
    except UnreadableError as error:
        fatal = Diagnostic(message=str(error), place=Place(source, error.line, error.column))
        return None, [*composer.diagnostics, fatal]


class _Composer:
    def __init__(self, source: SourceFile) -> None:
        self.diagnostics: list[Diagnostic] = []
        self._source = source
        self._text = source.text
        self._position = 0
        self._path: list[str | int] = []
        self._lines = [0, *(found.end() for found in LINE_BREAK.finditer(source.text))]

    def document(self) -> Node | None:
        """Return the root, or None for an empty file.

        Raises:
            UnreadableError: the text is not JSON.
        """
        if not self._next():
            return None
        root = self._value()
        if self._next():
            self._give_up("expected the end of the file")
        return root

    def _value(self) -> Node:
        character = self._next()
        if len(self._path) > MAX_DEPTH:
            self._give_up(f"nested deeper than {MAX_DEPTH} levels")
        place = self._place()
        if character == "{":
            return Mapping(self._entries(), place, self._place())
        if character == "[":
            items: list[Node] = []
            for _ in self._members("]"):
                self._path.append(len(items))
                items.append(self._value())
                self._path.pop()
            return Sequence(tuple(items), place, self._place())
        return Scalar(self._scalar(), place, self._place())

    def _entries(self) -> dict[str, MapItem]:
        entries: dict[str, MapItem] = {}
        for start in self._members("}"):
            if self._text[start] != '"':
                self._give_up("expected a key in double quotes")
            place = self._place()
            key = str(self._scalar())
            if self._next() != ":":
                self._give_up(f'expected `:` after "{key}"')
            self._position += 1
            self._path.append(key)
            node = self._value()
            if (first := entries.get(key)) is not None:
                message = f"`{key}` is written twice, first in line {first.place.line}"
                self.diagnostics.append(Diagnostic(message=message, path=tuple(self._path), place=place))
            entries[key] = MapItem(place, node)
            self._path.pop()
        return entries

    def _members(self, end: str) -> Iterator[int]:
        """Yield the position of each member or item. A trailing comma is allowed."""
        opened = self._place()
        self._position += 1
        while (character := self._next()) != end:
            if not character:
                self._give_up(f"expected `{end}`; its opening bracket is at {opened.line}:{opened.column}")
            yield self._position
            if self._next() == ",":
                self._position += 1
            elif self._next() not in {end, ""}:
                self._give_up(f"expected `,` or `{end}`")
        self._position += 1

    def _scalar(self) -> bool | int | float | str | None:
        found = _TOKEN.match(self._text, self._position)
        token = "" if found is None else found[0]
        if found is None and self._next() == '"':
            self._give_up("the quote opened here is never closed")
        try:
            value: bool | int | float | str | None = orjson.loads(token)
        except orjson.JSONDecodeError as error:
            if token.startswith('"'):
                self._position += error.pos
                self._give_up("JSON does not allow this control character or escape in a string")
            self._give_up("expected a value: text in double quotes, a number, true, false, null, `{` or `[`")
        self._position += len(token)
        return value

    def _next(self) -> str:
        """Skip white space and comments. Return the next character, or "" at the end of the text."""
        found = _SKIPPED.match(self._text, self._position)
        self._position = self._position if found is None else found.end()
        if self._text.startswith("/*", self._position):
            self._give_up("the comment opened here is never closed")
        return self._text[self._position : self._position + 1]

    def _place(self) -> Place:
        line = bisect_right(self._lines, self._position)
        return Place(self._source, line, self._position - self._lines[line - 1] + 1)

    def _give_up(self, message: str) -> NoReturn:
        place = self._place()
        raise UnreadableError(f"JSON syntax: {message}", line=place.line, column=place.column)
