"""Computes which paths to watch, and takes snapshots of file metadata. File contents are never read.

Directories are watched instead of files. A watch on a file follows the inode, so the watch is lost when the file is
replaced by rename. Kubernetes updates ConfigMaps by renaming `..data`, which only a watch on the directory reports.
"""

import os
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec

from gateway.catalog.file_dependencies import FileDependencies
from gateway.config.loader import LoadedConfig
from gateway.config.machine_facts import is_directory
from gateway.config.reading.file_pattern import FilePattern
from gateway.executors.files.globs import Globs

State = tuple[int, int, int, str]
"""Inode, change time in ns, size in bytes, and the resolved path.

The change time of the inode (ctime) also changes on renames and new permissions, and programs cannot set it.
"""

MAX_DEPTH: Final = 64
"""The maximum depth of directories below a root."""

MAX_ENTRIES: Final = 100_000
"""The maximum number of paths in a snapshot. Further paths are only watched by events."""

_SUFFIXES: Final = (".yaml", ".yml", ".md")
"""Patterns only match files with these suffixes."""
_MISSING: Final[State] = (0, 0, 0, "")
_NOISE: Final = frozenset({"__pycache__", ".git", ".hg", "node_modules"})


# Use a dataclass, because a `msgspec.Struct` would also compare `present`.
@dataclass(frozen=True, kw_only=True)
class WatchPlan:
    """Files, directories, patterns of new files, and directory trees to watch."""

    files: frozenset[Path] = frozenset()
    directories: frozenset[Path] = frozenset()
    patterns: frozenset[FilePattern] = frozenset()
    """Patterns of new files. Patterns with `**` are covered by `trees`."""
    trees: frozenset[Path] = frozenset()
    globs: frozenset[Globs] = frozenset()
    """Globs of files to watch, including subdirectories that can contain matches. Other files are ignored."""
    present: frozenset[Path] = field(default=frozenset(), compare=False)
    """The paths that existed when the files were read."""

    def __or__(self, other: "WatchPlan") -> "WatchPlan":
        sets = ("files", "directories", "patterns", "trees", "globs", "present")
        return replace(self, **{name: getattr(self, name) | getattr(other, name) for name in sets})

    @cached_property
    def roots(self) -> frozenset[Path]:
        return self.trees.union(Path(globs.root) for globs in self.globs)

    @property
    def flat(self) -> frozenset[Path]:
        """Directories to watch non-recursively. A missing directory is replaced by its nearest existing parent."""
        wanted = self.directories | {path.parent for path in self.files | self._led_to}
        missing = {path for path in wanted | self.roots if not is_directory(path)}
        return (wanted - missing) | {next(filter(is_directory, path.parents)) for path in missing}

    def matters(self, path: str) -> bool:
        """Return whether an event on `path` requires a new snapshot of the watched files."""
        place = Path(path)
        for real, root in self._real_roots:
            if place.is_relative_to(real):
                path, place = str(root / place.relative_to(real)), root / place.relative_to(real)
        is_below_a_tree = any(place.is_relative_to(tree) for tree in self.trees)
        return (
            place in self._named
            or self._is_meant(path)
            or place.is_symlink()  # A replaced link can point to a watched file.
            or (is_below_a_tree and _NOISE.isdisjoint(place.parts))
            or any(_leads(globs, path) for globs in self.globs)
        )

    @cached_property
    def _named(self) -> frozenset[Path]:
        """The watched paths and all their parent directories, because parents can be removed or created too."""
        named = self.files | self._led_to | self.directories | self.roots
        return named.union(*(path.parents for path in named))

    @cached_property
    def _real_roots(self) -> tuple[tuple[Path, Path], ...]:
        """Roots whose paths contain links, with their resolved paths. FSEvents on macOS reports resolved paths."""
        real = ((Path(os.path.realpath(root)), root) for root in self.roots)
        return tuple((place, root) for place, root in real if place != root)

    @cached_property
    def _led_to(self) -> frozenset[Path]:
        return frozenset(Path(os.path.realpath(path)) for path in self.files)

    def _is_meant(self, path: str) -> bool:
        directory, name = os.path.split(path)
        return name.endswith(_SUFFIXES) and any(
            _fits(name, each.pattern)
            and (directory == str(each.directory) or directory == os.path.realpath(each.directory))  # As in events.
            for each in self.patterns
        )

    def snapshot(self) -> "Snapshot":
        """Take a snapshot. This method blocks. Unreadable paths count as missing."""
        # Read the clock first, so that changes during the snapshot count as later.
        taken_at = time.time_ns()
        found: dict[str, State] = {}
        for path in self._paths():
            if len(found) >= MAX_ENTRIES:
                break
            found[path] = _state(path)
        return Snapshot(plan=self, taken_at=taken_at, states=found)

    def _paths(self) -> Iterator[str]:
        yield from map(str, self.files)
        yield from map(str, self.directories)
        for directory in {each.directory for each in self.patterns}:
            yield from (entry.path for entry in _scan(str(directory)) if self._is_meant(entry.path))
        for tree in self.trees:
            yield from _walk(str(tree))
        for globs in self.globs:
            yield from _meant(globs)


def watch_loaded(config: LoadedConfig) -> WatchPlan:
    return WatchPlan(
        files=frozenset(config.files),
        directories=config.directories,
        patterns=frozenset(config.globs),
        trees=config.trees,
        present=frozenset(path for path, digest in config.files.items() if digest),
    )


def watch_dependencies(lock_file: Path, dependencies: FileDependencies) -> WatchPlan:
    """Return the plan for the lock file and the other files that the catalog depends on."""
    return WatchPlan(
        files=frozenset({*dependencies.files, lock_file}),
        trees=frozenset(dependencies.trees),
        globs=frozenset(dependencies.globs),
        present=frozenset({*dependencies.trees, *(Path(globs.root) for globs in dependencies.globs)}),
    )


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The states of all paths of a watch plan."""

    plan: WatchPlan = msgspec.field(default_factory=WatchPlan)
    taken_at: int
    """Start time of the snapshot, in ns since the epoch."""
    states: Mapping[str, State] = msgspec.field(default_factory=dict)

    def differs_from(self, earlier: "Snapshot") -> bool:
        """Return whether files have changed since the earlier snapshot. This method blocks.

        The snapshots can have different plans. A path only in the new plan counts as changed if it was modified or
        removed since the earlier snapshot. A path only in the earlier plan counts as changed if it was removed.
        """
        if self.plan == earlier.plan:
            return self.states != earlier.states
        shared = self.states.keys() & earlier.states.keys()
        new, left_out = self.states.keys() - shared, earlier.states.keys() - shared
        return (
            any(self.states[path] != earlier.states[path] for path in shared)
            or any(self._changed_at(path) >= earlier.taken_at for path in new)
            or any(self.states[path] == _MISSING for path in new & set(map(str, self.plan.present)))
            or any(_state(path) == _MISSING != earlier.states[path] for path in left_out)
        )

    def _changed_at(self, path: str) -> int:
        """Return the latest change time of a path and of the links that lead to it, in ns."""
        inode, changed_at, _, place = self.states[path]
        # Circular links have no inode here, because `stat` fails, so `_links` terminates.
        if inode and place != path:
            return max((changed_at, *(link.st_ctime_ns for link in _links(Path(path)))))
        if not inode or changed_at or not path.endswith(_SUFFIXES):
            return changed_at
        try:
            return os.stat(path).st_ctime_ns  # noqa: PTH116 - see `_state`
        except OSError:
            return 0


def _links(path: Path) -> Iterator[os.stat_result]:
    for part in (*reversed(path.parents), path):
        if part.is_symlink():
            yield part.lstat()
            yield from _links(part.parent / part.readlink() / path.relative_to(part))
            return


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) and name.startswith(".") <= pattern.startswith(".")


def _walk(root: str) -> Iterator[str]:
    yield root
    waiting = [(root, 1)]
    while waiting:
        directory, depth = waiting.pop()
        for entry in _scan(directory):
            if entry.name in _NOISE:
                continue
            yield entry.path
            if depth < MAX_DEPTH and entry.is_dir(follow_symlinks=False):
                waiting.append((entry.path, depth + 1))


def _meant(globs: Globs) -> Iterator[str]:
    root = str(globs.root)
    yield root
    patterns = globs.patterns
    waiting = [(root, patterns.start, 1)]
    while waiting:
        directory, places, depth = waiting.pop()
        for entry in _scan(directory):
            after = patterns.after(places, entry.name)
            if after and entry.is_dir(follow_symlinks=False):
                yield entry.path
                if depth < MAX_DEPTH:
                    waiting.append((entry.path, after, depth + 1))
            elif after and patterns.accepts(after):
                yield entry.path


def _leads(globs: Globs, path: str) -> bool:
    if not Path(path).is_relative_to(globs.root):
        return False
    places = globs.patterns.start
    for name in Path(path).relative_to(globs.root).parts:
        places = globs.patterns.after(places, name)
    return bool(places)


def _scan(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []


def _state(path: str) -> State:
    try:
        status = os.stat(path)  # noqa: PTH116 - names that are not UTF-8 stay plain strings
        leads_to = os.path.realpath(path)
    except (OSError, ValueError):  # The path contains NUL.
        return _MISSING
    if stat.S_ISDIR(status.st_mode):  # Directories change with any entry, and entries are compared separately.
        return (status.st_ino, 0, 0, leads_to)
    return (status.st_ino, status.st_ctime_ns, status.st_size, leads_to)
