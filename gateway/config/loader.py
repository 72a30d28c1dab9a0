"""Reads the configuration files into one `Document`, and reports all problems at once.

Each definition is validated separately. Invalid definitions are left out of the document, so that the compiler can
still check the others.
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
    """The document, with the data to locate problems, mask secrets and watch files."""

    document: Document
    sources: WrittenSources
    redactor: Redactor
    secrets: frozenset[str]
    files: Mapping[Path, str]
    """SHA-256 of each file (keyed for secrets), or "" for an unreadable file."""
    secret_files: frozenset[Path]
    """Files in `${file:…}`."""
    globs: tuple[FilePattern, ...]
    """Patterns of `include` and `prompt_files`. New matching files cause a reload."""
    variables: Mapping[str, Variable]
    """Variables in `${env:…}`, set or not."""
    root: Path
    lock_file: Path
    """`mcp-gateway.lock` for config.yaml or a directory, otherwise `NAME.mcp-gateway.lock`."""
    problems: tuple[Problem, ...] = ()
    """Sorted by file and line. A document with errors is not served."""
    broken: frozenset[DocumentPath] = frozenset()
    """Definitions (`("tools", "x")`) and sections (`("server",)`) with errors, which `document` lacks."""
    repaired: Mapping[DocumentPath, Definition] = msgspec.field(default_factory=dict)
    """Broken definitions without their invalid values. Compiling them reveals further errors."""
    is_whole: bool = True
    unstructured: tuple[SourceFile, ...] = ()
    """Files that are not valid YAML."""
    origins: Mapping[DocumentPath, Origin] = msgspec.field(default_factory=dict)
    """Where each merged definition comes from."""
    claims: frozenset[tuple[tuple[str, str], DocumentPath]] = frozenset()
    """Names, each with a further entry that offers the same name."""
    reviewed: Mapping[DocumentPath, tuple[Definition, Origin]] = msgspec.field(default_factory=dict)
    """Locked versions of merged definitions, if they are still known."""
    left_out: tuple[LeftOutOperation, ...] = ()
    instructions: Mapping[str, str] = msgspec.field(default_factory=dict)
    unavailable: Mapping[str, str] = msgspec.field(default_factory=dict)
    """By upstream."""
    fingerprints: tuple[str, ...] = ()
    """Fingerprints of the source entries."""

    @property
    def owners(self) -> Mapping[DocumentPath, DocumentPath]:
        """Source entry (`("upstreams", "github")`) of each merged definition."""
        return {name: origin.path[:2] for name, origin in self.origins.items()}

    @property
    def directories(self) -> frozenset[Path]:
        """Directories to watch: those of all files, and those where patterns start."""
        starts = (pattern.directory for pattern in self.globs)
        return frozenset({self.root, *(path.parent for path in self.files), *starts})

    @property
    def trees(self) -> frozenset[Path]:
        """Directories to watch recursively, because a pattern can match files in subdirectories."""
        return frozenset(pattern.directory for pattern in self.globs if pattern.is_deep)

    @property
    def digest(self) -> str:
        """Digest of all files and source entries, without file names and secrets.

        Digests of secrets are keyed by process, so they would differ between replicas.
        """
        written = (digest for path, digest in self.files.items() if path not in self.secret_files)
        return hashlib.sha256("".join([*written, *self.fingerprints]).encode()).hexdigest()

    def is_hidden(self, *path: str) -> bool:
        """Whether an error can be the reason why `document` lacks this section or definition."""
        # An unreadable file or a failed `include` can hide any definition.
        if not self.is_whole or not self.broken.isdisjoint({path, path[:1], ("include",)}):
            return True
        # Invalid YAML has no keys, so search its text.
        return any(all(step in source.text for step in path) for source in self.unstructured)

    def with_repaired(self) -> "LoadedConfig":
        """Return the configuration with repaired definitions, for compilation only."""
        sections: dict[str, dict[str, Definition]] = {}
        for (section, name), definition in self.repaired.items():
            sections.setdefault(str(section), dict(getattr(self.document, str(section))))[str(name)] = definition
        return replace(self, document=self.document.model_copy(update=sections)) if sections else self

    def start_problems(self) -> Problems:
        """Return the loader's problems, so that the compiler can add more."""
        return Problems(self.sources, found=self.problems, redactor=self.redactor, lenient=self.origins)

    def raise_errors(self) -> None:
        """Raise `ConfigError` with all problems if there is any error."""
        self.start_problems().raise_errors()


def load(path: Path, *, environ: Mapping[str, str] = os.environ) -> LoadedConfig:
    """Read a file, or all files of a directory, with their includes.

    Invalid definitions are left out. Call `raise_errors` before serving the document.

    Raises:
        ConfigError: with every problem, if no file could be read as a configuration.
    """
    interpolation = Interpolator(environ)
    inclusion = Inclusion(interpolation)
    inclusion.read(path)
    merger = Merger(inclusion, interpolation)
    for root, is_main in inclusion.parts:
        merger.add(root, is_main=is_main)
    sources = WrittenSources(
        merger.tree(),
        directory=inclusion.directory,
        secrets=interpolation.literal_secrets,
        unstructured=inclusion.unstructured,
        files=[*(root.place.source for root, _ in inclusion.parts), *inclusion.unstructured],
    )
    broken = merger.broken()
    document = merger.document(without=broken)
    # Mask API keys of the document in the problems of all files.
    redactor = Redactor({*interpolation.secrets, *own_secrets(environ), *_written_keys(document)})
    # For an included file that is also a secret, only the keyed digest is kept, which cannot be brute-forced.
    files = {**inclusion.digests, **interpolation.files}
    diagnostics = [*interpolation.diagnostics, *_files_open_to_all(files)]
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
        problems=tuple(sources.problem(each, redactor) for each in _in_order(diagnostics, files=inclusion.digests)),
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
    """Yield the API keys and credentials in the file. Short keys could be common words and are skipped."""
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
    files = tuple(files)
    for path in dict.fromkeys((*(file.parent for file in files), *files)):
        if (message := open_to_all(path)) is not None:
            yield Diagnostic(message=message, place=Place(SourceFile(path, ""), 1, 1), severity=Severity.WARNING)


def _in_order(diagnostics: Iterable[Diagnostic], *, files: Iterable[Path]) -> list[Diagnostic]:
    """Sort by file in reading order, then by line, without duplicates."""
    order = {path: index for index, path in enumerate(files)}
    # An error in an anchor is found again at each alias.
    found: dict[tuple[str, str, Place | None], Diagnostic] = {}
    for each in diagnostics:
        found.setdefault((each.message, each.severity, each.place), each)

    def position(diagnostic: Diagnostic) -> tuple[int, int, int]:
        place = diagnostic.place
        return (-1, 0, 0) if place is None else (order.get(place.source.path, -1), place.line, place.column)

    return sorted(found.values(), key=position)
