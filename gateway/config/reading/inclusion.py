"""Collects the files of a configuration: the main file or a directory, and all included files.

Each file is read once, before the files that it includes. An unreadable file is reported at the `include` that names
it, and the other files are still read.
"""

import os
import re
from pathlib import Path
from typing import Final

import msgspec
from pydantic import ConfigDict, TypeAdapter, ValidationError

from gateway.config.diagnostics.render import shown_path
from gateway.config.machine_facts import is_directory
from gateway.config.models.interpolated_text import shown
from gateway.config.reading.composer import compose
from gateway.config.reading.file_pattern import FilePattern
from gateway.config.reading.interpolation import Interpolator
from gateway.config.reading.nodes import Diagnostic, Invalid, MapItem, Mapping, Place, Scalar
from gateway.config.reading.source_file import SourceFile, UnreadableError, decode, digest, read_bytes
from gateway.config.reading.validation_messages import diagnostics_of
from gateway.errors import Severity

SUFFIXES: Final = (".yaml", ".yml")


_TEXTS: Final = TypeAdapter(list[str], config=ConfigDict(strict=True, defer_build=True))


class Request(msgspec.Struct, frozen=True):
    """A path or glob in `include`, `prompt_files` or `mcp_json`."""

    text: str
    shown: str
    """The text with secrets masked, for messages."""
    section: str
    place: Place


class Inclusion:
    """Reads files, and records which files to watch."""

    def __init__(self, interpolation: Interpolator) -> None:
        self.parts: list[tuple[Mapping, bool]] = []
        """Root of each file, and whether the file can contain sections that are allowed only in the main file."""
        self._diagnostics = interpolation.diagnostics
        self.digests: dict[Path, str] = {}
        """SHA-256 of each requested file, or "" for an unreadable file."""
        self.globs: list[FilePattern] = []
        self.unstructured: list[SourceFile] = []
        """Files that are not valid YAML."""
        self.directory = Path()
        """Directory of the main file, or the directory that was passed to `read`."""
        self._interpolation = interpolation
        self._seen: set[str] = set()
        self._roots: frozenset[str] = frozenset()

    def read(self, path: Path) -> None:
        """Read a file, or all files in a directory, and all included files."""
        path = Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would follow links, and change what `..` means
        roots = [path]
        self.directory = path.parent
        if is_directory(path):
            self.directory = path
            roots = self._files_of(path)
        self._roots = frozenset(map(os.path.realpath, roots))
        for each in roots:
            self._file(each, chain=(), blame=None)

    def _files_of(self, directory: Path) -> list[Path]:
        self.globs.extend(FilePattern(directory, f"*{suffix}") for suffix in SUFFIXES)
        start = Place(SourceFile(directory, ""), 1, 1)
        try:
            names = sorted(os.listdir(directory))  # noqa: PTH208 - only the names are needed
        except OSError as error:
            self._report(f"cannot be read: {error.strerror}", start)
            return []
        # Emacs creates a link `.#config.yaml` while it edits the file.
        files = [directory / name for name in names if name.endswith(SUFFIXES) and not name.startswith(".")]
        if not files:
            self._report("no *.yaml or *.yml file in this directory", start)
        return files

    def requests(self, entry: MapItem, section: str) -> list[Request]:
        """Return the paths and globs that a section lists. Invalid items are reported and left out."""
        data = self._interpolation.fill(entry.node, (section,))
        try:
            _TEXTS.validate_python(data)
        except ValidationError as error:
            found = diagnostics_of(error, model=list[str], data=data, item=entry, path=(section,))
            self._diagnostics.extend(found)
            return []
        nodes = getattr(entry.node, "items", ())
        return [
            Request(str(item), shown(item), section, node.place)
            for item, node in zip(data, nodes, strict=True)
            if not isinstance(item, Invalid)
        ]

    def matches(self, request: Request, *, suffixes: tuple[str, ...]) -> list[Path]:
        """Return the files that a request matches. A path without wildcards is returned even if no such file exists."""
        pattern = request.text
        if "\0" in pattern:
            self._refuse(request, "a path cannot contain NUL")
            return []
        wanted = FilePattern.parse(pattern, directory=request.place.source.directory)
        if not pattern.endswith(suffixes if wanted.path is not None else (*suffixes, "*")):
            self._refuse(request, f"expected {' or '.join(f'*{suffix}' for suffix in suffixes)}, got {request.shown}")
            return []
        try:
            found = wanted.found() if wanted.path is None else [wanted.path]
        except UnreadableError as error:  # such a pattern cannot be watched either
            self._refuse(request, f"{request.shown} {error}")
            return []
        self.globs.append(wanted)
        return sorted(path for path in found if path.name.endswith(suffixes))

    def source(self, path: Path, blame: Request | None) -> SourceFile | None:
        """Read a file. If the file is unreadable, report the reason at `blame` and return None."""
        # Record the path first, because missing files are watched too.
        self.digests[path] = ""
        try:
            data = read_bytes(path)
            self.digests[path] = digest(data)
            return SourceFile(path, decode(data))
        except UnreadableError as error:
            is_read = bool(self.digests[path])
            if blame is not None and not is_read:
                # The path may contain a secret.
                is_quotable = blame.shown == blame.text
                name = os.path.relpath(path, blame.place.source.directory) if is_quotable else blame.shown
                self._refuse(blame, f"{name}: {error}")
            elif isinstance(error.__cause__, FileNotFoundError):
                message = f"{error}. Create one with `mcp-gateway init`, or pass a file"
                self._diagnostics.append(Diagnostic(message=message, path=(shown_path(path),)))
            else:
                self._report(str(error), Place(SourceFile(path, ""), error.line, error.column))
            return None

    def _file(self, path: Path, *, chain: tuple[str, ...], blame: Request | None) -> None:
        identity = os.path.realpath(path)
        # Check this before `_seen`, which also contains all files in `chain`.
        if identity in chain and blame is not None:
            cycle = (*chain[chain.index(identity) :], identity)
            names = " → ".join(os.path.relpath(each, Path(chain[0]).parent) for each in cycle)
            self._refuse(blame, f"a file includes itself: {names}")
            return
        if identity in self._seen:
            return
        # Record the real path, because a file can have several names.
        self._seen.add(identity)
        source = self.source(path, blame)
        if source is None:
            return
        root, diagnostics = compose(source)
        self._diagnostics.extend(diagnostics)
        is_main = identity in self._roots
        if root is None:
            if diagnostics:
                self.unstructured.append(source)
            else:
                severity = Severity.ERROR if is_main and len(self._roots) == 1 else Severity.WARNING
                self._report("the file is empty", Place(source, 1, 1), severity)
        elif not isinstance(root, Mapping):
            self._report("expected a mapping (`key: value`) as the file's content", root.place)
        elif (version := _openapi_version(root)) is not None:
            message = "is an OpenAPI document: add it as `document` under `openapi:` instead of including it"
            self._report(message, version.place)
        else:
            self.parts.append((root, is_main))
            self._includes(root, chain=(*chain, identity))

    def _includes(self, root: Mapping, *, chain: tuple[str, ...]) -> None:
        entry = root.entries.get("include")
        if entry is None or entry.is_empty:
            return
        included: dict[Path, Request] = {}
        for request in self.requests(entry, "include"):
            for path in self.matches(request, suffixes=SUFFIXES):
                included.setdefault(path, request)
        for path in sorted(included):
            self._file(path, chain=chain, blame=included[path])

    def _refuse(self, request: Request, message: str) -> None:
        self._diagnostics.append(Diagnostic(message=message, path=(request.section,), place=request.place))

    def _report(self, message: str, place: Place | None, severity: Severity = Severity.ERROR) -> None:
        self._diagnostics.append(Diagnostic(message=message, place=place, severity=severity))


def _openapi_version(root: Mapping) -> Scalar | None:
    entry = root.entries.get("openapi") or root.entries.get("swagger")
    node = None if entry is None else entry.node
    # In a configuration file, `openapi` is a mapping, not a version number.
    return node if isinstance(node, Scalar) and re.match(r"\d", str(node.value)) else None
