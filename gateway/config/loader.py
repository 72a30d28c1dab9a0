"""Reads the operator's files into one `Document`, and reports everything that is wrong with them.

All errors are found in one pass: each definition is validated by itself, so that one cannot hide another; a file that
is not YAML does not hide what the others say. A definition with an error is left out of the document. The others go on
to the compiler, whose problems join the same report, and which does not miss what was left out
(`LoadedConfig.is_hidden`).
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

import msgspec

from gateway.config.diagnostics.problems import Problems
from gateway.config.machine_facts import open_to_all
from gateway.config.models.auth import MIN_KEY_LENGTH
from gateway.config.models.definition_keys import Definition
from gateway.config.models.document import Document
from gateway.config.reading.file_pattern import FilePattern
from gateway.config.reading.inclusion import Inclusion
from gateway.config.reading.interpolation import Interpolator, Variable
from gateway.config.reading.merger import Merger
from gateway.config.reading.nodes import Diagnostic, Place
from gateway.config.reading.source_file import SourceFile
from gateway.config.reading.source_map import LeftOutOperation, Origin, WrittenSources
from gateway.config.secrets.redactor import Redactor
from gateway.config.settings import own_secrets
from gateway.errors import Problem, Severity
from gateway.json_types import DocumentPath


class LoadedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The loaded document, with what is needed to locate its nodes, mask its secrets and watch its files."""

    document: Document
    sources: WrittenSources
    redactor: Redactor
    secrets: frozenset[str]
    files: Mapping[Path, str]
    """Every file that was asked for → SHA-256 (keyed for secrets); empty where it could not be read."""
    secret_files: frozenset[Path]
    """The files that `${file:…}` names."""
    globs: tuple[FilePattern, ...]
    """Patterns of `include` and `prompt_files`: a file that appears under one belongs to the configuration."""
    variables: Mapping[str, Variable]
    """Every variable of the environment that `${env:…}` asks for, set or not."""
    root: Path
    """The directory of the main file, or the one that was given."""
    problems: tuple[Problem, ...] = ()
    """Errors and warnings, in the order of files and lines. The compiler reports them with its own; a document with
    errors is not served."""
    broken: frozenset[DocumentPath] = frozenset()
    """Definitions (`("tools", "x")`), which `document` has not, and sections (`("server",)`) with an error."""
    is_whole: bool = True
    """Whether every file could be read."""
    unstructured: tuple[SourceFile, ...] = ()
    """Files that could be read, but are not YAML."""
    owners: Mapping[DocumentPath, DocumentPath] = msgspec.field(default_factory=dict)
    """The entry, such as `("upstreams", "github")`, of each definition that is not written in the files."""
    origins: Mapping[DocumentPath, Origin] = msgspec.field(default_factory=dict)
    """The definitions that are not written in the files, and where they come from (`definition_source.merge`)."""
    claims: frozenset[tuple[tuple[str, str], DocumentPath]] = frozenset()
    """Names of definitions, each with another entry that offers the same name and is not its owner."""
    reviewed: Mapping[DocumentPath, tuple[Definition, Origin]] = msgspec.field(default_factory=dict)
    """Definitions of sources as they were locked, where their source remembers that."""
    left_out: tuple[LeftOutOperation, ...] = ()
    """What their entries have beside them."""
    instructions: Mapping[str, str] = msgspec.field(default_factory=dict)
    """What the upstreams that they come from tell models, by upstream."""
    fingerprints: tuple[str, ...] = ()
    """Those of the entries that they come from."""

    @property
    def directories(self) -> frozenset[Path]:
        """Directories in which changes matter: those of all files, and those in which globs start."""
        starts = (pattern.directory for pattern in self.globs)
        return frozenset({self.root, *(path.parent for path in self.files), *starts})

    @property
    def trees(self) -> frozenset[Path]:
        """Directories below which changes matter at any depth: globs may mean files of directories yet to be made."""
        return frozenset(pattern.directory for pattern in self.globs if pattern.is_deep)

    @property
    def digest(self) -> str:
        """One digest of all files, whatever their names, and of what sources offer: equal where the same was read.

        A secret is not in it: its own digest has a key that each process draws for itself, and would differ.
        """
        written = (digest for path, digest in self.files.items() if path not in self.secret_files)
        return hashlib.sha256("".join([*written, *self.fingerprints]).encode()).hexdigest()

    def is_hidden(self, *path: str) -> bool:
        """Whether an error that is reported already may be why `document` lacks this section or definition."""
        # A file that cannot be read, or an `include` that failed, may have had anything.
        if not self.is_whole or not self.broken.isdisjoint({path, path[:1], ("include",)}):
            return True
        # A file that is not YAML has no keys to look up: its text is searched for the names.
        return any(all(step in source.text for step in path) for source in self.unstructured)

    def start_problems(self) -> Problems:
        """A report that begins with what the loader found; what the compiler finds is added."""
        return Problems(self.sources, found=self.problems, redactor=self.redactor, lenient=self.origins)

    def raise_errors(self) -> None:
        """Raise `ConfigError` with everything found, if any of it is an error."""
        self.start_problems().raise_errors()


def load(path: Path, *, environ: Mapping[str, str] = os.environ) -> LoadedConfig:
    """Read a file, or a directory as all its files, with everything that they include.

    With errors, a document without the broken definitions is returned, so that the compiler's problems can join the
    loader's: `LoadedConfig.start_problems` begins that report, and its `raise_errors` comes before anything is served.

    Raises:
        ConfigError: no file could be read as a configuration at all; it has every problem.
    """
    interpolation = Interpolator(environ)
    inclusion = Inclusion(interpolation)
    inclusion.read(path)
    merger = Merger(inclusion, interpolation)
    for part in inclusion.parts:
        merger.add(part)
    sources = WrittenSources(
        merger.tree(),
        directory=inclusion.directory,
        secrets=interpolation.literal_secrets,
        unstructured=inclusion.unstructured,
        files=[*(part.source for part in inclusion.parts), *inclusion.unstructured],
    )
    broken = merger.broken()
    document = merger.document(without=broken)
    # After the document is made: keys that were written into it, too, are masked in the problems of all files.
    redactor = Redactor({*interpolation.secrets, *own_secrets(environ), *_written_keys(document)})
    # In this order: a file that is both has the keyed digest alone, by which nobody can try out a secret.
    files = {**inclusion.digests, **interpolation.files}
    warnings = [*interpolation.warnings, *_files_open_to_all(files)]
    diagnostics = _without_repetitions(
        [*inclusion.diagnostics, *interpolation.diagnostics, *merger.diagnostics, *warnings]
    )
    loaded = LoadedConfig(
        document=document,
        sources=sources,
        redactor=redactor,
        secrets=frozenset(interpolation.secrets),
        files=files,
        secret_files=frozenset(interpolation.files),
        globs=tuple(dict.fromkeys(inclusion.globs)),
        variables=dict(interpolation.variables),
        root=inclusion.directory,
        problems=tuple(
            sources.problem(diagnostic, redactor)
            for diagnostic in _in_order(diagnostics, files=list(inclusion.digests))
        ),
        broken=broken,
        is_whole=all(inclusion.digests.values()),
        unstructured=tuple(inclusion.unstructured),
    )
    if not inclusion.parts:
        loaded.raise_errors()
    return loaded


def _written_keys(document: Document) -> Iterable[str]:
    """API keys and credentials that are written in the file itself.

    Short API keys could be common words, and are not masked.
    """
    holders = {} if document.auth is None else document.auth.api_keys
    yield from (secret for holder in holders.values() for secret in holder.secret if len(secret) >= MIN_KEY_LENGTH)
    called = chain(
        (connection.auth for connection in document.connections.values()),
        (upstream.auth for upstream in document.upstreams.values()),
    )
    for auth in filter(None, called):
        yield from auth.secrets()
    for database in document.databases.values():
        yield from database.secrets()


def _files_open_to_all(files: Iterable[Path]) -> Iterator[Diagnostic]:
    """A warning for each file of the configuration, and each directory that holds one, which anybody may change."""
    files = tuple(files)
    for path in dict.fromkeys((*(file.parent for file in files), *files)):
        if (message := open_to_all(path)) is not None:
            yield Diagnostic(message=message, place=Place(SourceFile(path, ""), 1, 1), severity=Severity.WARNING)


def _without_repetitions(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Each diagnostic once: an error in an anchor is found wherever the anchor is used."""
    seen: dict[tuple[str, str, Place | None], Diagnostic] = {}
    for diagnostic in diagnostics:
        seen.setdefault((diagnostic.message, diagnostic.severity, diagnostic.place), diagnostic)
    return list(seen.values())


def _in_order(diagnostics: Iterable[Diagnostic], *, files: list[Path]) -> list[Diagnostic]:
    """Sort diagnostics by the order in which files were read, then by line."""
    order = {path: index for index, path in enumerate(files)}

    def position(diagnostic: Diagnostic) -> tuple[int, int, int]:
        place = diagnostic.place
        return (-1, 0, 0) if place is None else (order.get(place.source.path, -1), place.line, place.column)

    return sorted(diagnostics, key=position)
