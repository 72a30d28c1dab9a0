"""Read the operator's files into one `Document`, or say everything that is wrong with them.

Every mistake is found in one pass: each definition is validated by itself, so that one cannot hide another; a file
that is not YAML does not hide what the others say. What is wrong in a place that nothing else depends on (a title, a
timeout) is taken out and the rest goes on to the compiler, whose findings belong into the same report. A definition
whose backend is wrong goes on with one that does nothing; one with a deeper mistake is left out, and the compiler does
not miss it (`LoadedConfig.may_hold`).
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.config.auth import SHORTEST_KEY
from gateway.config.document import Document
from gateway.config.problems import DocumentPath, Problems
from gateway.config.reading.file_pattern import FilePattern
from gateway.config.reading.inclusion import Inclusion
from gateway.config.reading.interpolation import Interpolation, Variable
from gateway.config.reading.merger import Merger
from gateway.config.reading.nodes import Finding, Place
from gateway.config.reading.permissions import files_open_to_all
from gateway.config.reading.source_file import SourceFile
from gateway.config.reading.source_map import WrittenSources
from gateway.config.secrets import Redactor
from gateway.config.settings import own_secrets
from gateway.errors import Problem, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfig:
    """What the files say, and all that is needed to point into them, to mask their secrets and to watch them."""

    document: Document
    sources: WrittenSources
    redactor: Redactor
    secrets: frozenset[str]
    files: Mapping[Path, str]
    """Every file that was asked for → SHA-256 (keyed for secrets); empty where it could not be read."""
    secret_files: frozenset[Path]
    """Those of them that `${file:…}` names."""
    globs: tuple[FilePattern, ...]
    """Patterns of `include` and `prompt_files`: a file that appears under one belongs to the configuration."""
    variables: Mapping[str, Variable]
    """Every variable of the environment that `${env:…}` asks for, set or not."""
    root: Path
    """The directory of the main file, or the one that was given."""
    problems: tuple[Problem, ...] = ()
    """Mistakes and warnings, in the order of files and lines. Whoever compiles the document reports them with its own:
    a document with mistakes is not one to serve."""
    left_out: frozenset[DocumentPath] = frozenset()
    """Definitions (`("tools", "x")`) and sections that `document` has not as they are meant, or not at all."""
    is_whole: bool = True
    """Whether every file could be read."""
    unstructured: tuple[SourceFile, ...] = ()
    """Files that could be read, but are not YAML."""

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity is Severity.WARNING)

    @property
    def directories(self) -> frozenset[Path]:
        """Where changes matter: the directories of all files, and those from which globs start."""
        starts = (pattern.directory for pattern in self.globs)
        return frozenset({self.root, *(path.parent for path in self.files), *starts})

    @property
    def trees(self) -> frozenset[Path]:
        """Directories below which changes matter at any depth: globs may mean files of directories yet to be made."""
        return frozenset(pattern.directory for pattern in self.globs if pattern.is_deep)

    def may_hold(self, *path: str) -> bool:
        """Whether `path` may be missing from the document only because of a mistake that is reported already."""
        if not self.is_whole or path in self.left_out or path[:1] in self.left_out:
            return True
        return any(all(step in source.text for step in path) for source in self.unstructured)

    def start_problems(self) -> Problems:
        """A report that begins with what the loader found; what the compiler finds is added."""
        return Problems(self.sources, found=self.problems, redactor=self.redactor)

    def raise_errors(self) -> None:
        """Raise `ConfigError` with everything found, if any of it is an error."""
        self.start_problems().raise_errors()


def load(path: Path, *, environ: Mapping[str, str] = os.environ) -> LoadedConfig:
    """Read a file, or a directory as all its files, with everything that they include.

    A document with mistakes is returned as far as it can be used, so that the compiler's findings join the loader's:
    `LoadedConfig.start_problems` begins that report, whose `raise_errors` comes before anything is served.

    Raises:
        ConfigError: no file could be read as a configuration at all; it has every problem.
    """
    interpolation = Interpolation(environ)
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
    )
    document = merger.document()
    redactor = Redactor({*interpolation.secrets, *own_secrets(environ), *_written_keys(document)})
    files = {**inclusion.digests, **interpolation.files}
    doubts = [*interpolation.doubts, *files_open_to_all(files)]
    findings = _without_repetitions([*inclusion.findings, *interpolation.findings, *merger.findings, *doubts])
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
            sources.problem(finding, redactor) for finding in _in_order(findings, files=list(inclusion.digests))
        ),
        left_out=frozenset(merger.left_out),
        is_whole=all(inclusion.digests.values()),
        unstructured=tuple(inclusion.unstructured),
    )
    if not inclusion.parts:
        loaded.raise_errors()
    return loaded


def _written_keys(document: Document) -> Iterable[str]:
    """Keys of callers, which are secrets even where they stand in the file itself; words that anybody uses are not."""
    holders = {} if document.auth is None else document.auth.api_keys
    return (secret for holder in holders.values() for secret in holder.secret if len(secret) >= SHORTEST_KEY)


def _without_repetitions(findings: Iterable[Finding]) -> list[Finding]:
    """One mistake once: what is wrong in an anchor is wrong wherever it is used."""
    seen: dict[tuple[str, str, Place | None], Finding] = {}
    for finding in findings:
        seen.setdefault((finding.message, finding.severity, finding.place), finding)
    return list(seen.values())


def _in_order(findings: Iterable[Finding], *, files: list[Path]) -> list[Finding]:
    """In the order in which files were read, and of lines in each."""
    order = {path: index for index, path in enumerate(files)}

    def position(finding: Finding) -> tuple[int, int, int]:
        place = finding.place
        return (-1, 0, 0) if place is None else (order.get(place.source.path, -1), place.line, place.column)

    return sorted(findings, key=position)
