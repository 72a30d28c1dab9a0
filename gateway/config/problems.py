"""Collects the mistakes found in a document, each with its place. Knows no rule of the language itself."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from gateway.config.secrets import Redactor
from gateway.errors import ConfigError, Location, Problem, Severity

DocumentPath = tuple[str | int, ...]
"""Keys and indexes from the root of the merged document: `("tools", "disk_usage", "shell", "command", 0)`."""


class SourceMap(Protocol):
    """Where each node of the merged document was written."""

    def locate(self, path: DocumentPath) -> tuple[Location | None, str]:
        """The place of the node, or of its nearest ancestor that was written, and that source line, secrets masked."""

    def directory(self, path: DocumentPath) -> Path:
        """The directory of the file in which the node stands: what its relative paths are relative to."""


class Problems:
    """A growing list of problems; `at` gives a view of it from further down the document."""

    def __init__(self, sources: SourceMap, *, found: Iterable[Problem] = (), redactor: Redactor | None = None) -> None:
        self._sources = sources
        self._redactor = redactor or Redactor()
        self._found: list[Problem] = list(found)
        self._prefix: DocumentPath = ()

    def at(self, *path: str | int) -> "Problems":
        view = Problems(self._sources, redactor=self._redactor)
        view._found = self._found
        view._prefix = (*self._prefix, *path)
        return view

    @property
    def root(self) -> "Problems":
        """The view from the top of the document: for what this place names elsewhere, such as a connection."""
        view = Problems(self._sources, redactor=self._redactor)
        view._found = self._found
        return view

    @property
    def directory(self) -> Path:
        return self._sources.directory(self._prefix)

    @property
    def path(self) -> str:
        """The place that this view looks at, as it is shown: `tools.disk_usage.shell.command.0`."""
        return ".".join(map(str, self._prefix))

    def error(self, message: str) -> None:
        self._add(message, Severity.ERROR)

    def warning(self, message: str) -> None:
        self._add(message, Severity.WARNING)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._found)

    @property
    def has_errors(self) -> bool:
        return any(problem.severity is Severity.ERROR for problem in self._found)

    def raise_errors(self) -> None:
        """Raise `ConfigError` with everything found, warnings too, if any of it is an error."""
        if self.has_errors:
            raise ConfigError(self._found)

    def _add(self, message: str, severity: Severity) -> None:
        location, source_line = self._sources.locate(self._prefix)
        problem = Problem(
            message=self._redactor.strictly(message),
            path=self.path,
            location=location,
            source_line=source_line,
            severity=severity,
        )
        if problem not in self._found:
            self._found.append(problem)
