"""The files that a configuration needs, and of which none is a secret. Blocking."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from gateway.catalog.file_dependencies import FileDependencies
from gateway.config.loader import LoadedConfig

MAX_FILES: Final = 10_000
MAX_BYTES: Final = 256 * 2**20
_PRIVATE_KEY: Final = b"PRIVATE KEY-----"
"""The end of the first line of a PEM file with a private key (RFC 7468 §10, §11)."""
_CACHES: Final = frozenset({"__pycache__"})


class NoBundleError(Exception):
    """The files cannot be bundled; the message says why."""


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a bundle, and those that were left out."""

    files: Mapping[str, Path]
    """By the path relative to the configuration's directory."""
    outside: tuple[Path, ...]
    """Files that lie elsewhere: they must be on the machine that the bundle is installed on."""
    secret: tuple[Path, ...]
    """Files that hold secrets."""


def contents_of(loaded: LoadedConfig, dependencies: FileDependencies) -> Contents:
    """Find the files.

    Raises:
        NoBundleError: there are too many, or some without which nothing is served lie elsewhere.
    """
    files: dict[str, Path] = {}
    outside: list[Path] = []
    secret: list[Path] = []
    secret_files = {path.resolve() for path in loaded.secret_files}
    root = loaded.root.resolve()
    needed = _files(_needed(loaded, dependencies))
    size = 0
    for path in sorted(needed | _files(_useful(dependencies)) | secret_files):
        if path in secret_files or _holds_private_key(path):
            secret.append(path)
        elif path.is_relative_to(root):
            files[path.relative_to(root).as_posix()] = path
            size += path.stat().st_size
        elif path in needed:
            raise NoBundleError(f"{path} lies outside of {root}, of which the bundle is made")
        else:
            outside.append(path)
        if len(files) > MAX_FILES or size > MAX_BYTES:
            raise NoBundleError(f"the files are more than {MAX_FILES:,}, or larger than {MAX_BYTES // 2**20} MiB")
    return Contents(files=files, outside=tuple(outside), secret=tuple(secret))


def _files(paths: Iterable[Path]) -> set[Path]:
    """The real paths of those that are files."""
    return {path.resolve() for path in paths if path.is_file()}


def _needed(loaded: LoadedConfig, dependencies: FileDependencies) -> Iterator[Path]:
    """The files of the configuration, and the code of plugins."""
    yield from loaded.files.keys() - loaded.secret_files
    for tree in dependencies.trees:
        for path in tree.rglob("*"):
            if not _CACHES.intersection(path.parts):
                yield path


def _useful(dependencies: FileDependencies) -> Iterator[Path]:
    """The files that primitives serve or run."""
    yield from dependencies.files
    for globs in dependencies.globs:
        for file in globs.listing(at_most=MAX_FILES).files:
            yield Path(globs.root, file.path)


def _holds_private_key(path: Path) -> bool:
    with path.open("rb") as file:
        return _PRIVATE_KEY in file.readline(200)
