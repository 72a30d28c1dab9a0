"""Reads the configuration files into one `Document` and reports every problem in one pass.

Each definition is validated separately. Definitions with errors are left out of the document, and the compiler adds its
problems for the others to the same report.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

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

LOCK_NAME: Final = "mcp-gateway.lock"


class LoadedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The loaded document and the data needed to locate its nodes, mask its secrets and watch its files."""

    document: Document
    sources: WrittenSources
    redactor: Redactor
    secrets: frozenset[str]
    files: Mapping[Path, str]
    """SHA-256 of each file (keyed for secrets), or "" if the file could not be read."""
    secret_files: frozenset[Path]
    """Files named by `${file:…}`."""
    globs: tuple[FilePattern, ...]
    """Patterns of `include` and `prompt_files`. New files that match them belong to the configuration."""
    variables: Mapping[str, Variable]
    """Environment variables named by `${env:…}`, set or not."""
    root: Path
    """Directory of the main file, or the given directory."""
    lock_file: Path
    """`mcp-gateway.lock` for config.yaml or a directory, `NAME.mcp-gateway.lock` for NAME.yaml."""
    problems: tuple[Problem, ...] = ()
    """Errors and warnings, ordered by file and line. A document with errors is not served."""
    broken: frozenset[DocumentPath] = frozenset()
    """Definitions (`("tools", "x")`) and sections (`("server",)`) with errors. `document` does not contain them."""
    repaired: Mapping[DocumentPath, Definition] = msgspec.field(default_factory=dict)
    """Definitions with errors, without their invalid values. They are compiled to find further errors."""
    is_whole: bool = True
    """Whether every file could be read."""
    unstructured: tuple[SourceFile, ...] = ()
    """Files that were read but are not valid YAML."""
    owners: Mapping[DocumentPath, DocumentPath] = msgspec.field(default_factory=dict)
    """The entry (`("upstreams", "github")`) of each definition that comes from a source."""
    origins: Mapping[DocumentPath, Origin] = msgspec.field(default_factory=dict)
    """Origins of the definitions that come from sources (`definition_source.merge`)."""
    claims: frozenset[tuple[tuple[str, str], DocumentPath]] = frozenset()
    """Names of definitions, each with another entry that offers the same name and is not its owner."""
    reviewed: Mapping[DocumentPath, tuple[Definition, Origin]] = msgspec.field(default_factory=dict)
    """Locked versions of source definitions, if the source remembers them."""
    left_out: tuple[LeftOutOperation, ...] = ()
    """Operations of sources that did not become definitions."""
    instructions: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Instructions of upstreams, by upstream name."""
    fingerprints: tuple[str, ...] = ()
    """Fingerprints of the source entries."""

    @property
    def directories(self) -> frozenset[Path]:
        """Directories to watch: those of all files, and those in which patterns start."""
        starts = (pattern.directory for pattern in self.globs)
        return frozenset({self.root, *(path.parent for path in self.files), *starts})

    @property
    def trees(self) -> frozenset[Path]:
        """Directories to watch recursively, because patterns can match files in new subdirectories."""
        return frozenset(pattern.directory for pattern in self.globs if pattern.is_deep)

    @property
    def digest(self) -> str:
        """Return one digest of all files and source entries. File names and secrets are not part of it.

        Digests of secrets use a random key per process, so they would differ between processes.
        """
        written = (digest for path, digest in self.files.items() if path not in self.secret_files)
        return hashlib.sha256("".join([*written, *self.fingerprints]).encode()).hexdigest()

    def is_hidden(self, *path: str) -> bool:
        """Whether a reported error may explain why `document` lacks this section or definition."""
        # Any definition could be in an unreadable file or behind a failed `include`.
        if not self.is_whole or not self.broken.isdisjoint({path, path[:1], ("include",)}):
            return True
        # A file that is not YAML has no keys, so its text is searched.
        return any(all(step in source.text for step in path) for source in self.unstructured)

    def with_repaired(self) -> "LoadedConfig":
        """Return the configuration with the repaired definitions. It must not be served: `problems` has errors."""
        sections: dict[str, dict[str, Definition]] = {}
        for (section, name), definition in self.repaired.items():
            sections.setdefault(str(section), dict(getattr(self.document, str(section))))[str(name)] = definition
        return replace(self, document=self.document.model_copy(update=sections)) if sections else self

    def start_problems(self) -> Problems:
        """Return a report that starts with the loader's problems. The compiler adds its own."""
        return Problems(self.sources, found=self.problems, redactor=self.redactor, lenient=self.origins)

    def raise_errors(self) -> None:
        """Raise `ConfigError` with all problems if any of them is an error."""
        self.start_problems().raise_errors()


def load(path: Path, *, environ: Mapping[str, str] = os.environ) -> LoadedConfig:
    """Read a file, or all files of a directory, with their includes.

    If definitions have errors, the returned document omits them. Call `raise_errors` before serving it.

    Raises:
        ConfigError: no file could be read as a configuration. It contains every problem.
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
    # API keys in the document are also masked in the problems of all files.
    redactor = Redactor({*interpolation.secrets, *own_secrets(environ), *_written_keys(document)})
    # A file that is both included and a secret keeps only the keyed digest, which cannot be brute-forced.
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
        lock_file=inclusion.directory / _lock_name(Path(path), inclusion.directory),
        problems=tuple(
            sources.problem(diagnostic, redactor)
            for diagnostic in _in_order(diagnostics, files=list(inclusion.digests))
        ),
        broken=broken,
        repaired=merger.repaired,
        is_whole=all(inclusion.digests.values()),
        unstructured=tuple(inclusion.unstructured),
    )
    if not inclusion.parts:
        loaded.raise_errors()
    return loaded


def _lock_name(path: Path, directory: Path) -> str:
    is_default = path.stem == "config" or path.absolute() == directory
    return LOCK_NAME if is_default else f"{path.stem}.{LOCK_NAME}"


def _written_keys(document: Document) -> Iterable[str]:
    """Yield the API keys and credentials in the file itself. Short API keys could be common words and are skipped."""
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
    """Warn about each configuration file, and each of their directories, that every user can change."""
    files = tuple(files)
    for path in dict.fromkeys((*(file.parent for file in files), *files)):
        if (message := open_to_all(path)) is not None:
            yield Diagnostic(message=message, place=Place(SourceFile(path, ""), 1, 1), severity=Severity.WARNING)


def _without_repetitions(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Remove duplicates: an error in an anchor is found at each of its aliases."""
    seen: dict[tuple[str, str, Place | None], Diagnostic] = {}
    for diagnostic in diagnostics:
        seen.setdefault((diagnostic.message, diagnostic.severity, diagnostic.place), diagnostic)
    return list(seen.values())


def _in_order(diagnostics: Iterable[Diagnostic], *, files: list[Path]) -> list[Diagnostic]:
    """Sort diagnostics by file, in reading order, then by line."""
    order = {path: index for index, path in enumerate(files)}

    def position(diagnostic: Diagnostic) -> tuple[int, int, int]:
        place = diagnostic.place
        return (-1, 0, 0) if place is None else (order.get(place.source.path, -1), place.line, place.column)

    return sorted(diagnostics, key=position)
