"""Collects the problems of a document, each with its place. Knows no rule of the language itself."""

from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Final, Protocol

from gateway.config.secrets.redactor import Redactor
from gateway.errors import ConfigError, Location, Problem, Severity
from gateway.json_types import DocumentPath


class TextOffset(int):
    """The last step of a path that leads into a text: the number of characters before the place."""


class SourceMap(Protocol):
    """Tells the place at which each node of the merged document was written."""

    def locate(self, path: DocumentPath) -> tuple[Location | None, str]:
        """The place of the node, or of its nearest ancestor that was written, and that source line, secrets masked.

        A last step that is a `TextOffset` leads into the node's text.
        """

    def directory(self, path: DocumentPath) -> Path:
        """The directory of the file in which the node stands: what its relative paths are relative to."""


class Problems:
    """A growing list of problems; `at` gives a view of it from further down the document."""

    __slots__ = ("_list", "_prefix")

    def __init__(
        self,
        sources: SourceMap | None = None,
        *,
        found: Iterable[Problem] = (),
        redactor: Redactor | None = None,
        lenient: Container[DocumentPath] = (),
    ) -> None:
        """Begin with the problems `found`.

        Args:
            sources: where each node was written; None for what has no place in a file, or none any more.
            found: what is known already.
            redactor: masks secrets in messages.
            lenient: definitions (`("tools", "x")`) whose errors are warnings: they must not keep the others, nor the
                file, from being served. They are unsound all the same.
        """
        self._list = _ProblemList(sources, redactor or Redactor(), lenient)
        self._prefix: DocumentPath = ()
        for problem in found:
            self._list.add(problem)

    def at(self, *path: str | int) -> "Problems":
        return self._view((*self._prefix, *path))

    @property
    def root(self) -> "Problems":
        """The view from the top of the document, for definitions that are referred to, such as a connection."""
        return self._view(())

    @property
    def is_lenient(self) -> bool:
        """Whether this is a place of a definition that is not written in the files."""
        return self._prefix[:2] in self._list.lenient

    @property
    def directory(self) -> Path:
        sources = self._list.sources
        return Path("/") if sources is None else sources.directory(self._prefix)

    @property
    def path(self) -> str:
        """The path of this view, as it is shown: `tools.disk_usage.shell.command.0`."""
        return ".".join(str(step) for step in self._prefix if not isinstance(step, TextOffset))

    def error(self, message: str) -> None:
        self._add(message, Severity.ERROR)

    def warning(self, message: str) -> None:
        self._add(message, Severity.WARNING)

    def add(self, problem: Problem) -> None:
        """Add a problem of another file than the configuration's own, which knows its place."""
        self._list.add(problem)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._list.problems)

    @property
    def has_errors(self) -> bool:
        return self._list.has_errors

    @property
    def has_no_errors(self) -> bool:
        """Whether neither the loader nor the compiler found an error at this place or below it."""
        unsound = self._list.unsound
        return not unsound or self.path not in unsound

    def raise_errors(self) -> None:
        """Raise `ConfigError` with everything found, warnings too, if any of it is an error."""
        if self.has_errors:
            raise ConfigError(self._list.problems)

    def _view(self, prefix: DocumentPath) -> "Problems":
        # Without `__init__`: views are made for every node of a document that may have ten thousand definitions.
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
    """The list that all views share, each problem in it once, with indexes: a file may have thousands of problems."""

    def __init__(self, sources: SourceMap | None, redactor: Redactor, lenient: Container[DocumentPath]) -> None:
        self.sources: Final = sources
        self.redactor: Final = redactor
        self.lenient: Final = lenient
        self.problems: list[Problem] = []
        self.has_errors = False
        self.unsound: set[str] = set()
        """Paths of the errors, and all paths above them."""
        self._known: set[Problem] = set()

    def add(self, problem: Problem) -> None:
        if problem in self._known:
            return
        self._known.add(problem)
        self.problems.append(problem)
        if problem.severity is Severity.ERROR:
            self.has_errors = True
            self._mark_unsound(problem.path)

    def mark_unsound_within(self, path: DocumentPath) -> None:
        """Mark a place and those above it up to its definition, but not the section, nor the document."""
        self.unsound.update(".".join(map(str, path[:length])) for length in range(2, len(path) + 1))

    def _mark_unsound(self, path: str) -> None:
        # A path that is marked has all above it marked, so that thousands of errors cost a few steps each.
        while path not in self.unsound:
            self.unsound.add(path)
            path = path.rpartition(".")[0]
