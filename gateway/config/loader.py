"""Reads the configuration files into one `Document`, and reports all problems at once.

Each definition is validated separately. Invalid definitions are left out of the document, so that the compiler can
still check the valid definitions.
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
from gateway.config.machine_facts import world_writable_warning
from gateway.config.models.auth import MIN_KEY_LENGTH
from gateway.config.models.definition_keys import Definition
from gateway.config.models.document import Document
from gateway.config.reading.file_pattern import FilePattern
from gateway.config.reading.inclusion import Inclusion
from gateway.config.reading.interpolation import Interpolator, Variable
from gateway.config.reading.merger import Merger
from gateway.config.reading.nodes import Diagnostic, Place
from gateway.config.reading.source_file import SourceFile
from gateway.config.reading.source_map import SourceDefinition, WrittenSources
from gateway.config.secrets.redactor import Redactor
from gateway.config.settings import own_secrets
from gateway.errors import Problem, Severity
from gateway.json_types import DocumentPath

LOCK_NAME: Final = "mcp-gateway.lock"


class Unavailable(msgspec.Struct, frozen=True, kw_only=True):
    """A definition that is not served, or an OpenAPI operation that is not offered as a tool."""

    kind: str
    """Section of the file, such as `tools` or `openapi`."""
    name: str
    """Name of the definition, or name of the OpenAPI entry and operation, such as `shop: GET /items`."""
    reason: str

    def __str__(self) -> str:
        return f"{self.kind}.{self.name} is not available here: {self.reason}"


class LoadedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The validated document, with the data needed to locate problems, mask secrets and watch files."""

    document: Document
    sources: WrittenSources
    redactor: Redactor
    files: Mapping[Path, str]
    """SHA-256 of each file (HMAC for secret files), or "" for an unreadable file."""
    secret_files: frozenset[Path]
    """Files that `${file:…}` refers to."""
    globs: tuple[FilePattern, ...]
    """Patterns in `include`, `prompt_files` and `mcp_json`. A new file that matches a pattern triggers a reload."""
    variables: Mapping[str, Variable]
    """Environment variables that `${env:…}` refers to, whether set or not."""
    inserted: Mapping[str, Iterable[str]]
    """The values of each `${…}`. In files of several directories, a `${file:…}` can have several values."""
    root: Path
    lock_file: Path
    """`mcp-gateway.lock` for config.yaml or a directory, otherwise `NAME.mcp-gateway.lock`."""
    problems: tuple[Problem, ...] = ()
    """All problems, sorted by file and line. The document is not served if one of them is an error."""
    broken: frozenset[DocumentPath] = frozenset()
    """Definitions (`("tools", "x")`) and sections (`("server",)`) that `document` lacks because of errors."""
    repaired: Mapping[DocumentPath, Definition] = msgspec.field(default_factory=dict)
    """Broken definitions with the invalid values removed. Compiling a repaired definition can reveal further errors."""
    is_whole: bool = True
    unstructured: tuple[SourceFile, ...] = ()
    """Files that are not valid YAML."""
    origins: Mapping[DocumentPath, SourceDefinition] = msgspec.field(default_factory=dict)
    """The origin of each definition that a source has added."""
    claims: frozenset[tuple[tuple[str, str], DocumentPath]] = frozenset()
    """Name conflicts. Each pair is a name that is served, and another source entry that also offers this name."""
    reviewed: Mapping[DocumentPath, SourceDefinition] = msgspec.field(default_factory=dict)
    """For merged definitions that differ from the lock file: the locked version, if the source still has it."""
    left_out: tuple[Unavailable, ...] = ()
    instructions: Mapping[str, str] = msgspec.field(default_factory=dict)
    unavailable: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Maps tool prefixes to the names of unavailable upstreams. Only contains upstreams that all callers can see."""
    fingerprints: tuple[str, ...] = ()

    @property
    def owners(self) -> Mapping[DocumentPath, DocumentPath]:
        """Maps each merged definition to its source entry, such as `("upstreams", "github")`."""
        return {name: origin.path[:2] for name, origin in self.origins.items()}

    @property
    def directories(self) -> frozenset[Path]:
        """Directories to watch: the root, the parent of each file, and the directory of each pattern."""
        starts = (pattern.directory for pattern in self.globs)
        return frozenset({self.root, *(path.parent for path in self.files), *starts})

    @property
    def trees(self) -> frozenset[Path]:
        """Directories to watch recursively, because a pattern can match files in subdirectories."""
        return frozenset(pattern.directory for pattern in self.globs if pattern.is_deep)

    @property
    def digest(self) -> str:
        """Digest of all files and source entries, equal in all replicas.

        Secret files are excluded, because their digests depend on a random key of the process.
        """
        written = (digest for path, digest in self.files.items() if path not in self.secret_files)
        return hashlib.sha256("".join([*written, *self.fingerprints]).encode()).hexdigest()

    def is_hidden(self, *path: str) -> bool:
        """Whether `document` could lack this section or definition because of an error in the files."""
        # An unreadable file or a failed `include` can hide any definition.
        if not self.is_whole or not self.broken.isdisjoint({path, path[:1], ("include",)}):
            return True
        # Invalid YAML has no keys, so search its text.
        return any(all(step in source.text for step in path) for source in self.unstructured)

    def with_repaired(self) -> "LoadedConfig":
        """Return a copy that includes invalid definitions, without their invalid values, to find further errors."""
        sections: dict[str, dict[str, Definition]] = {}
        for (section, name), definition in self.repaired.items():
            sections.setdefault(str(section), dict(getattr(self.document, str(section))))[str(name)] = definition
        return replace(self, document=self.document.model_copy(update=sections)) if sections else self

    def start_problems(self) -> Problems:
        """Return a list of the loader's problems, to which the compiler can add problems."""
        return Problems(self.sources, found=self.problems, redactor=self.redactor, lenient=self.origins)

    def raise_errors(self) -> None:
        """Raise `ConfigError` with all problems if there is any error."""
        self.start_problems().raise_errors()


def load(path: Path, *, environ: Mapping[str, str] = os.environ) -> LoadedConfig:
    """Read a configuration file, or all files in a directory, and all included files.

    Invalid definitions are left out. Call `raise_errors` before serving the document.

    Raises:
        ConfigError: none of the files could be read. The error contains all problems.
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
    redactor = Redactor({*interpolation.secrets, *own_secrets(environ), *_secrets_in(document)})
    # If an included file is also a secret file, keep its keyed digest. A plain digest could be brute-forced.
    files = {**inclusion.digests, **interpolation.files}
    diagnostics = [*interpolation.diagnostics, *_world_writable_files(files)]
    found: dict[tuple[str, str, Place | None], Diagnostic] = {}
    for each in diagnostics:
        # An error in an anchor is found again at each alias.
        found.setdefault((each.message, each.severity, each.place), each)
    loaded = LoadedConfig(
        document=document,
        sources=sources,
        redactor=redactor,
        files=files,
        secret_files=frozenset(interpolation.files),
        globs=tuple(dict.fromkeys(inclusion.globs)),
        variables=dict(interpolation.variables),
        inserted=interpolation.inserted,
        root=inclusion.directory,
        lock_file=inclusion.directory / _lock_name(Path(path), inclusion.directory),
        problems=in_file_order((sources.problem(each, redactor) for each in found.values()), inclusion.digests),
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


def _secrets_in(document: Document) -> Iterable[str]:
    """Yield the secrets in the document. Skip short API keys, which could be common words."""
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


def _world_writable_files(files: Iterable[Path]) -> Iterator[Diagnostic]:
    files = tuple(files)
    for path in dict.fromkeys((*(file.parent for file in files), *files)):
        if (message := world_writable_warning(path)) is not None:
            yield Diagnostic(message=message, place=Place(SourceFile(path, ""), 1, 1), severity=Severity.WARNING)


def in_file_order(problems: Iterable[Problem], files: Iterable[Path]) -> tuple[Problem, ...]:
    """Sort problems by file in reading order, then by line. Problems of other files are last."""
    order = {path: index for index, path in enumerate(files)}

    def position(problem: Problem) -> tuple[int, int, int]:
        place = problem.location
        return (-1, 0, 0) if place is None else (order.get(place.file, len(order)), place.line, place.column)

    return tuple(sorted(problems, key=position))
