"""Collects problems of a configuration, with their locations in the files."""

from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Final, Protocol

from gateway.config.secrets.redactor import Redactor
from gateway.errors import ConfigError, Location, Problem, Severity
from gateway.json_types import DocumentPath


class TextOffset(int):
    """The position of a character in a string, counted from 0. Only allowed as the last element of a path."""


class SourceMap(Protocol):
    """Locates nodes of the merged document in the configuration files."""

    def locate(self, path: DocumentPath) -> tuple[Location | None, str]:
        """Return the location of a node, and its source line with secrets masked.

        If no file contains the node, return the location of its closest ancestor. `path` can end with a `TextOffset`.
        """

    def directory(self, path: DocumentPath) -> Path:
        """Return the directory against which relative paths in the node are resolved."""


class Problems:
    """A list of problems. `at` returns an object that adds problems to the same list, for a nested node."""

    __slots__ = ("_list", "_prefix")

    def __init__(
        self,
        sources: SourceMap | None = None,
        *,
        found: Iterable[Problem] = (),
        redactor: Redactor | None = None,
        lenient: Container[DocumentPath] = (),
    ) -> None:
        """Create a list that starts with the problems `found`.

        Args:
            sources: locates nodes in the files. None if the configuration has no files.
            found: the initial problems.
            redactor: masks secrets in messages.
            lenient: paths of definitions, such as `("tools", "x")`, whose errors become warnings, so that other
                definitions can be served. Such warnings still make `has_no_errors` false.
        """
        self._list = _ProblemList(sources, redactor or Redactor(), lenient)
        self._prefix: DocumentPath = ()
        for problem in found:
            self._list.add(problem)

    def at(self, *path: str | int) -> "Problems":
        return self._view((*self._prefix, *path))

    @property
    def root(self) -> "Problems":
        """The object that adds problems to the same list, for the whole document."""
        return self._view(())

    @property
    def is_lenient(self) -> bool:
        """Whether errors in this definition are reported as warnings."""
        return self._prefix[:2] in self._list.lenient

    @property
    def directory(self) -> Path:
        sources = self._list.sources
        return Path("/") if sources is None else sources.directory(self._prefix)

    @property
    def path(self) -> str:
        """The path for display, such as `tools.disk_usage.shell.command.0`."""
        return ".".join(str(step) for step in self._prefix if not isinstance(step, TextOffset))

    def error(self, message: str) -> None:
        self._add(message, Severity.ERROR)

    def warning(self, message: str) -> None:
        self._add(message, Severity.WARNING)

    def add(self, problem: Problem) -> None:
        """Add a problem that already has a location."""
        self._list.add(problem)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._list.problems)

    @property
    def has_errors(self) -> bool:
        return self._list.has_errors

    @property
    def has_no_errors(self) -> bool:
        """Whether this node and all nodes below it are free of errors, including errors reported as warnings."""
        unsound = self._list.unsound
        return not unsound or self.path not in unsound

    def raise_errors(self) -> None:
        """Raise `ConfigError` with all problems if there is any error."""
        if self.has_errors:
            raise ConfigError(self._list.problems)

    def _view(self, prefix: DocumentPath) -> "Problems":
        # Skip `__init__` for speed, because every node of up to ten thousand definitions gets a view.
        view = object.__new__(Problems)
        view._list = self._list
        view._prefix = prefix
        return view

    def _add(self, message: str, severity: Severity) -> None:
        sources = self._list.sources
        location, source_line = (None, "") if sources is None else sources.locate(self._prefix)
        if severity is Severity.ERROR and self.is_lenient:
            severity = Severity.WARNING
            # Mark the node and its ancestors, up to the definition.
            paths = (self._prefix[:length] for length in range(2, len(self._prefix) + 1))
            self._list.unsound.update(".".join(map(str, path)) for path in paths)
        self._list.add(
            Problem(
                message=self._list.redactor.strictly(message),
                path=self.path,
                location=location,
                source_line=source_line,
                severity=severity,
            )
        )


class _ProblemList:
    def __init__(self, sources: SourceMap | None, redactor: Redactor, lenient: Container[DocumentPath]) -> None:
        self.sources: Final = sources
        self.redactor: Final = redactor
        self.lenient: Final = lenient
        self.problems: list[Problem] = []
        self.has_errors = False
        self.unsound: set[str] = set()
        """Paths of all nodes with errors, and of the ancestors of these nodes."""
        self._known: set[Problem] = set()

    def add(self, problem: Problem) -> None:
        if problem in self._known:
            return
        self._known.add(problem)
        self.problems.append(problem)
        if problem.severity is Severity.ERROR:
            self.has_errors = True
            path = problem.path
            # Stop at a marked path, because its ancestors are marked too.
            while path not in self.unsound:
                self.unsound.add(path)
                path = path.rpartition(".")[0]
