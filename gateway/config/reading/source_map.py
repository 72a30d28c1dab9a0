"""Where each node of the merged document was written, and that line with its literal secrets masked."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gateway.config.literal_secrets import SECRET_KEY, TOKENS
from gateway.config.problems import DocumentPath
from gateway.config.reading.nodes import Finding, Mapping, Place, Scalar, find, place_of, plain
from gateway.config.reading.source_file import SourceFile
from gateway.config.secrets import Redactor
from gateway.config.text import MASK
from gateway.errors import Location, Problem
from gateway.json_types import Json

_CREDENTIALS: Final = re.compile(
    TOKENS.pattern
    + r"|(?<=bearer )(?!\$\{)[\w.~+/=-]{8,}|(?<=basic )(?!\$\{)[\w.~+/=-]{8,}|(?<=://)[^/\s:@'\"]+:(?!\$\{)[^/\s@'\"]+(?=@)",
    re.IGNORECASE,
)
"""Secrets that can be told by their looks, wherever they stand."""

_PASSED_ON: Final = re.compile(rf"(?:{SECRET_KEY.pattern})[\w-]*=(?!\$\{{)([^\s'\"&,\]}}]+)", re.IGNORECASE)
"""`--password=…` in a command line, `token=…` in a query."""

_SECRET_MEMBER: Final = re.compile(rf"(?:{SECRET_KEY.pattern})[\w-]*['\"]?\s*[:=]\s*(?!\$\{{)(\S.*)", re.IGNORECASE)
"""In a file whose structure is not known: everything that follows a key which looks like a secret's."""


class WrittenSources:
    """The source map of one load."""

    def __init__(
        self, root: Mapping, *, directory: Path, secrets: Iterable[Scalar], unstructured: Iterable[SourceFile]
    ) -> None:
        self._root = root
        self._directory = directory
        self._unstructured = {source.path for source in unstructured}
        self._lines: dict[tuple[Path, int], str] = {}
        """Those that were shown; a file that a program wrote may be one long line with a thousand problems."""
        self._secrets: dict[tuple[Path, int], list[Scalar]] = {}
        for scalar in secrets:
            for line in range(scalar.start.line, scalar.end.line + 1):
                self._secrets.setdefault((scalar.source.path, line), []).append(scalar)

    def locate(self, path: DocumentPath) -> tuple[Location | None, str]:
        entry, node, taken = find(self._root, path)
        if taken == 0 and node is self._root:
            return None, ""
        is_inside_short_form = isinstance(node, Scalar)  # `python: "m:f"` stands for `python: {call: "m:f"}`
        points_at_key = taken < len(path) and entry is not None and not is_inside_short_form
        return self.pointed(entry.place if points_at_key and entry is not None else place_of(entry, node))

    def written(self, path: DocumentPath) -> Json:
        """What stands there, nothing interpolated; None where nothing was written."""
        _, node, taken = find(self._root, path)
        return plain(node) if taken == len(path) else None

    def directory(self, path: DocumentPath) -> Path:
        _, node, taken = find(self._root, path)
        return node.source.directory if taken else self._directory

    def pointed(self, place: Place) -> tuple[Location, str]:
        """A place, and its line as it may be shown."""
        return place.source.location(place.line, place.column), self._line(place.source, place.line - 1)

    def problem(self, finding: Finding, redactor: Redactor) -> Problem:
        location, line = self.pointed(finding.place) if finding.place is not None else (None, "")
        return Problem(
            message=redactor.strictly(self._covered(finding)),
            path=".".join(map(str, finding.path)),
            location=location,
            source_line=redactor.text(line),
            severity=finding.severity,
        )

    def _covered(self, finding: Finding) -> str:
        """What is said of a node, without the literal secret that it is."""
        message, place = finding.message, finding.place
        if place is None:
            return message
        for scalar in self._secrets.get((place.source.path, place.line - 1), ()):
            if scalar.start.column == place.column - 1 and str(scalar.value):
                message = re.sub(rf"(?<!\w){re.escape(str(scalar.value))}(?!\w)", MASK, message)
        return message

    def _line(self, source: SourceFile, number: int) -> str:
        key = source.path, number
        if key not in self._lines:
            self._lines[key] = self._masked_line(source, number)
        return self._lines[key]

    def _masked_line(self, source: SourceFile, number: int) -> str:
        line = source.lines[number] if number < len(source.lines) else ""
        for scalar in self._secrets.get((source.path, number), ()):
            start = scalar.start.column if number == scalar.start.line else len(line) - len(line.lstrip())
            end = scalar.end.column if number == scalar.end.line else len(line)
            line = _masked(line, start, end)
        if source.path in self._unstructured and (member := _SECRET_MEMBER.search(line)) is not None:
            line = _masked(line, member.start(member.lastindex or 0), len(line))
        for match in _CREDENTIALS.finditer(line):
            line = _masked(line, *match.span())
        for match in _PASSED_ON.finditer(line):
            line = _masked(line, *match.span(match.lastindex or 0))
        return line.rstrip()


def _masked(line: str, start: int, end: int) -> str:
    """Cover a part of the line, as wide as it was, so that a caret below still points at its column."""
    return line[:start] + MASK[: end - start].ljust(end - start) + line[end:]
