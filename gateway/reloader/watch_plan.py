"""What to watch, and what it looked like when last seen. Reads directories and states of files, never contents.

Why directories: a watch on a file follows its inode, and is lost with the first save by rename. A ConfigMap is swapped
by a rename of `..data` beside the links to it, which only their directory sees.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

State = tuple[int, int, int, str]
"""Inode, modification time in ns, size in bytes, and where the path leads once links are resolved."""

_MISSING: Final[State] = (0, 0, 0, "")
_NOISE: Final = frozenset({"__pycache__", ".git", ".hg", "node_modules"})
"""Written beside what matters, by interpreters and version control."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPlan:
    """Single files, directories where new files of some kinds matter, and directories with everything below."""

    files: frozenset[Path] = frozenset()
    directories: frozenset[Path] = frozenset()
    suffixes: tuple[str, ...] = (".yaml", ".yml", ".md")
    """Endings of the files that matter in `directories`: a log that grows beside them does not."""
    trees: frozenset[Path] = frozenset()
    most_entries: int = 100_000
    """A tree larger than this is watched by events alone."""

    @property
    def flat(self) -> frozenset[Path]:
        """Directories to be watched without what is below them."""
        return self.directories | {path.parent for path in self.files}

    def matters(self, path: str) -> bool:
        """Whether an event on `path` makes a look worth it. A log that grows beside the files must not."""
        place = Path(path)
        is_below_a_tree = any(place.is_relative_to(tree) for tree in self.trees)
        return (
            path.endswith(self.suffixes)
            or place in self.files | self.flat
            or place.is_symlink()  # a link that was swapped may lead to one of the files
            or (is_below_a_tree and _NOISE.isdisjoint(place.parts))
        )

    def snapshot(self) -> dict[str, State]:
        """The state of everything that matters. Blocking; what cannot be read counts as missing."""
        found: dict[str, State] = {}
        for path in self._paths():
            if len(found) >= self.most_entries:
                break
            found[path] = _state(path)
        return found

    def _paths(self) -> Iterator[str]:
        yield from map(str, self.files)
        for directory in self.directories:
            yield str(directory)
            yield from (entry.path for entry in _scan(str(directory)) if entry.name.endswith(self.suffixes))
        for tree in self.trees:
            yield from _walk(str(tree))


def _walk(directory: str) -> Iterator[str]:
    yield directory
    for entry in _scan(directory):
        if entry.name in _NOISE:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path)
        else:
            yield entry.path


def _scan(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []


def _state(path: str) -> State:
    try:
        status = Path(path).stat()
        leads_to = os.path.realpath(path)
    except OSError:
        return _MISSING
    if stat.S_ISDIR(status.st_mode):  # its entries are looked at one by one; its own times move with any of them
        return (status.st_ino, 0, 0, leads_to)
    return (status.st_ino, status.st_mtime_ns, status.st_size, leads_to)
