"""Locates nodes of the merged document, and returns source lines with literal secrets masked."""

import os
import re
from collections.abc import Iterable
from copy import copy
from functools import cache, partial
from pathlib import Path
from typing import Final

import msgspec

from gateway.config.diagnostics.problems import TextOffset
from gateway.config.models.definition_keys import Definition
from gateway.config.models.interpolated_text import MASK
from gateway.config.reading.nodes import Diagnostic, Mapping, Place, Scalar, find, place_of, plain
from gateway.config.reading.source_file import SourceFile, digest_of_json
from gateway.config.secrets.literal_secrets import SECRET_KEY, TOKENS
from gateway.config.secrets.redactor import Redactor
from gateway.errors import Location, Problem
from gateway.json_types import DocumentPath, Json

# `(?!\$\{)`: a reference to a variable is not a secret.
_CREDENTIALS: Final = (
    TOKENS.pattern
    + r"|(?<=bearer )(?!\$\{)[\w.~+/=-]{8,}|(?<=basic )(?!\$\{)[\w.~+/=-]{8,}|(?<=://)[^/\s:@'\"]+:(?!\$\{)[^/\s@'\"]+(?=@)"
)
"""Pattern for secrets that are recognised by their form. The pattern is compiled on first use."""

_PASSED_ON: Final = rf"(?:{SECRET_KEY.pattern})[\w-]*=(?!\$\{{)([^\s'\"&,\]}}]+)"
"""Pattern for secrets such as `--password=…` in a command line, or `token=…` in a query."""

_SECRET_MEMBER: Final = rf"(?:{SECRET_KEY.pattern})[\w-]*['\"]?\s*[:=]\s*(?!\$\{{)(\S.*)"
"""Pattern for all text after a key that looks secret. It is used for files that are not valid YAML, and for files of
MCP clients, of which malformed and skipped parts are not read."""

_ENOUGH: Final = 12
"""Number of characters to search for when a problem is at a position inside a scalar."""


class SourceDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A definition that does not come from the YAML files."""

    config: Definition
    path: DocumentPath
    """Path of the source entry, such as `("upstreams", "github")`, or of the entry's override for this definition."""
    written: Json
    """Everything that determines the definition, as JSON. The lock file pins a digest of this value."""


class WrittenSources:
    def __init__(
        self,
        root: Mapping,
        *,
        directory: Path,
        secrets: Iterable[Scalar],
        unstructured: Iterable[SourceFile],
        files: Iterable[SourceFile],
    ) -> None:
        self._root = root
        self._files = tuple(files)
        self._directory = directory
        self._relative = cache(partial(os.path.relpath, start=directory))
        self._origins: dict[DocumentPath, SourceDefinition] = {}
        self._unstructured = {source.path for source in unstructured}
        self._lines: dict[tuple[Path, int], str] = {}
        """Cache of masked lines, because a generated file can have a thousand problems in one long line."""
        self._secrets: dict[tuple[Path, int], list[Scalar]] = {}
        for scalar in secrets:
            for line in range(scalar.place.line, scalar.end.line + 1):
                self._secrets.setdefault((scalar.place.source.path, line), []).append(scalar)

    def with_origins(self, origins: dict[DocumentPath, SourceDefinition]) -> "WrittenSources":
        """Return a copy that also locates definitions from MCP servers and OpenAPI documents."""
        extended = copy(self)
        extended._origins = origins  # noqa: SLF001 - a new copy
        return extended

    def locate(self, path: DocumentPath) -> tuple[Location | None, str]:
        place = self._place(path)
        return (None, "") if place is None else self.pointed(place)

    def _place(self, path: DocumentPath) -> Place | None:
        path = self._in_files(path)
        if path and isinstance(offset := path[-1], TextOffset):
            _, text, taken = find(self._root, path := path[:-1])
            if taken == len(path) and isinstance(text, Scalar):
                return _place_in(text, offset)
        entry, node, taken = find(self._root, path)
        if taken == 0 and node is self._root:
            return None
        is_inside_short_form = isinstance(node, Scalar)  # `python: "m:f"` is short for `python: {call: "m:f"}`
        points_at_key = taken < len(path) and entry is not None and not is_inside_short_form
        return entry.place if points_at_key and entry is not None else place_of(entry, node)

    def written(self, path: DocumentPath) -> Json:
        """Return the value at a path without interpolation, or None if the files do not contain the path."""
        if path in self._origins:
            return self._origins[path].written
        _, node, taken = find(self._root, path)
        return plain(node) if taken == len(path) else None

    def digest(self, path: DocumentPath) -> str:
        """Return a digest of the definition at a path, before interpolation."""
        return digest_of_json([self.written(path), self._relative(self.directory(path))])

    def texts(self) -> dict[Path, str]:
        """Return the text of each readable file, with literal secrets masked."""
        return {
            source.path: "\n".join(self._line(source, number) for number in range(1, len(source.lines) + 1))
            for source in self._files
        }

    def directory(self, path: DocumentPath) -> Path:
        _, node, taken = find(self._root, self._in_files(path))
        return node.place.source.directory if taken else self._directory

    def pointed(self, place: Place) -> tuple[Location, str]:
        """Return the location and the source line of a place, with secrets masked."""
        location = Location(file=place.source.path, line=place.line, column=place.column)
        return location, self._line(place.source, place.line)

    def problem(self, diagnostic: Diagnostic, redactor: Redactor) -> Problem:
        location, line = self.pointed(diagnostic.place) if diagnostic.place is not None else (None, "")
        return Problem(
            message=redactor.strictly(self._masked_message(diagnostic)),
            path=".".join(map(str, diagnostic.path)),
            location=location,
            source_line=redactor.text(line),
            severity=diagnostic.severity,
        )

    def _in_files(self, path: DocumentPath) -> DocumentPath:
        origin = self._origins.get(path[:2])
        return path if origin is None else origin.path

    def _masked_message(self, diagnostic: Diagnostic) -> str:
        """Return the message of a diagnostic. If the diagnostic is about a secret, mask the secret."""
        message, place = diagnostic.message, diagnostic.place
        if place is None:
            return message
        for scalar in self._secrets.get((place.source.path, place.line), ()):
            if scalar.place.column == place.column and str(scalar.value):
                # Replace only whole words, because a short secret can be part of other words.
                message = re.sub(rf"(?<!\w){re.escape(str(scalar.value))}(?!\w)", MASK, message)
        return message

    def _line(self, source: SourceFile, number: int) -> str:
        key = source.path, number
        if key not in self._lines:
            self._lines[key] = self._masked_line(source, number)
        return self._lines[key]

    def _masked_line(self, source: SourceFile, number: int) -> str:
        line = source.lines[number - 1] if number <= len(source.lines) else ""
        for scalar in self._secrets.get((source.path, number), ()):
            start = scalar.place.column - 1 if number == scalar.place.line else len(line) - len(line.lstrip())
            end = scalar.end.column - 1 if number == scalar.end.line else len(line)
            line = _masked(line, start, end)
        patterns = [_CREDENTIALS]
        if "=" in line:  # faster than searching lines without `=`
            patterns.append(_PASSED_ON)
        if source.is_of_client or source.path in self._unstructured:
            patterns.append(_SECRET_MEMBER)
        for pattern in patterns:
            for match in re.finditer(pattern, line, re.IGNORECASE):
                line = _masked(line, *match.span(match.lastindex or 0))
        return line.rstrip()


def _masked(line: str, start: int, end: int) -> str:
    """Mask part of a line without changing its length, so that carets still point to the right column."""
    return line[:start] + MASK[: end - start].ljust(end - start) + line[end:]


def _place_in(scalar: Scalar, offset: int) -> Place:
    """Return the position of a character in a scalar, or of the scalar if its notation hides the character."""
    text = str(scalar.value)
    shown = re.compile(re.escape(text[offset : offset + _ENOUGH].split("\n", maxsplit=1)[0]))
    # The same characters can occur before.
    earlier = len(shown.findall(text[:offset]))
    for line in range(scalar.place.line, scalar.end.line + 1):
        start = scalar.place.column - 1 if line == scalar.place.line else 0
        for found in shown.finditer(scalar.place.source.lines[line - 1], start):
            if not earlier:
                return Place(scalar.place.source, line, found.start() + 1)
            earlier -= 1
    return scalar.place
