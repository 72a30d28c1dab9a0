"""Collects problems of a configuration, with their locations in the files."""

from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Final, Protocol

from gateway.config.secrets.redactor import Redactor
from gateway.errors import ConfigError, Location, Problem, Severity
from gateway.json_types import DocumentPath


class TextOffset(int):
    """The last element of a path to a position within a text: the number of characters before the position."""


class SourceMap(Protocol):
    """Finds where the nodes of the merged document were written in the files."""

    def locate(self, path: DocumentPath) -> tuple[Location | None, str]:
        """Return the location of a node, and its source line with secrets masked.

        A node that no file contains has the location of its closest ancestor. A path can end with a `TextOffset`.
        """

    def directory(self, path: DocumentPath) -> Path:
        """Return the directory against which relative paths in the node are resolved."""


class Problems:
    """A list of problems. `at` returns a view that reports problems at a nested node."""

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
            sources: locates nodes in the files, or None without files.
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
        """The view of the whole document, to report problems outside the current node."""
        return self._view(())

    @property
    def is_lenient(self) -> bool:
        """Whether errors of this definition are reported as warnings."""
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
        """Add a complete problem, which already has its location."""
        self._list.add(problem)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._list.problems)

    @property
    def has_errors(self) -> bool:
        return self._list.has_errors

    @property
    def has_no_errors(self) -> bool:
        """Whether neither the loader nor the compiler found an error at or below this node."""
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
            self._list.mark_unsound_within(self._prefix)
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
    """The list that all views of one `Problems` share. It drops duplicate problems."""

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

    def mark_unsound_within(self, path: DocumentPath) -> None:
        """Record that a node and its ancestors, up to the definition, contain an error."""
        self.unsound.update(".".join(map(str, path[:length])) for length in range(2, len(path) + 1))
