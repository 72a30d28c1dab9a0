"""Watch plans, and snapshots of what they name. Reads directories and the states of files, never contents.

Why directories: a watch on a file follows its inode, and is lost with the first save by rename. A ConfigMap is swapped
by a rename of `..data` beside the links to it, which only their directory sees.
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
from gateway.catalog.lockfile.lock import LOCK_NAME
from gateway.config.loader import LoadedConfig
from gateway.config.machine_facts import is_directory
from gateway.config.reading.file_pattern import FilePattern
from gateway.executors.files.globs import Globs

State = tuple[int, int, int, str]
"""Inode, time of the last change in ns, size in bytes, and where the path leads once links are resolved.

The inode's own time, not that of its contents: it moves with a rename and with permissions too, and nobody sets it.
"""

MAX_DEPTH: Final = 64
"""Directories below a root that are looked into: whoever may make directories there makes no more work than that."""

MAX_ENTRIES: Final = 100_000
"""Places of a plan that are looked at: those beyond it are watched by events alone."""

_MISSING: Final[State] = (0, 0, 0, "")
_NOISE: Final = frozenset({"__pycache__", ".git", ".hg", "node_modules"})
"""Written beside what matters, by interpreters and version control."""


# A dataclass: a `msgspec.Struct` compares all its fields, and `present` is no part of the plan.
@dataclass(frozen=True, kw_only=True)
class WatchPlan:
    """Single files, directories that may come and go, patterns of new files, and directories with everything below."""

    files: frozenset[Path] = frozenset()
    directories: frozenset[Path] = frozenset()
    patterns: frozenset[FilePattern] = frozenset()
    """A new file matters if one of these matches it. Patterns with `**` are covered by `trees`."""
    suffixes: tuple[str, ...] = (".yaml", ".yml", ".md")
    """Endings of the files that patterns match."""
    trees: frozenset[Path] = frozenset()
    globs: frozenset[Globs] = frozenset()
    """Directories in which only files that these match matter, and the directories on the way."""
    present: frozenset[Path] = field(default=frozenset(), compare=False)
    """The paths that existed when the files were read."""

    def __or__(self, other: "WatchPlan") -> "WatchPlan":
        return replace(
            self,
            files=self.files | other.files,
            directories=self.directories | other.directories,
            patterns=self.patterns | other.patterns,
            trees=self.trees | other.trees,
            globs=self.globs | other.globs,
            present=self.present | other.present,
        )

    @cached_property
    def roots(self) -> frozenset[Path]:
        """Directories to be watched with all that is below them."""
        return self.trees.union(Path(globs.root) for globs in self.globs)

    @property
    def flat(self) -> frozenset[Path]:
        """Directories to be watched without what is below them: for one that is not there, the one where it will be."""
        wanted = self.directories | {path.parent for path in self.files | self._led_to}
        missing = {path for path in wanted | self.roots if not is_directory(path)}
        return (wanted - missing) | {next(filter(is_directory, path.parents)) for path in missing}

    def matters(self, path: str) -> bool:
        """Say whether an event on `path` is a reason to look. A log that grows beside the files is none."""
        place = Path(path)
        is_below_a_tree = any(place.is_relative_to(tree) for tree in self.trees)
        return (
            place in self._named
            or self._is_meant(path)
            or place.is_symlink()  # a link that was swapped may lead to one of the files
            or (is_below_a_tree and _NOISE.isdisjoint(place.parts))
            or any(_leads(globs, path) for globs in self.globs)
        )

    @cached_property
    def _named(self) -> frozenset[Path]:
        """The files, the directories, and all that lie above: one of these may be removed, or come into being."""
        named = self.files | self._led_to | self.directories | self.roots
        return named.union(*(path.parents for path in named))

    @cached_property
    def _led_to(self) -> frozenset[Path]:
        """The targets of links: a file is written where it lies."""
        return frozenset(Path(os.path.realpath(path)) for path in self.files)

    def _is_meant(self, path: str) -> bool:
        directory, name = os.path.split(path)
        return name.endswith(self.suffixes) and any(
            _fits(name, each.pattern)
            and (directory == str(each.directory) or directory == os.path.realpath(each.directory))  # as events name it
            for each in self.patterns
        )

    def snapshot(self) -> "Snapshot":
        """The state of everything that matters. Blocking; what cannot be read counts as missing."""
        # Before the first look: what changes while the others are looked at counts as changed after it.
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
    """Plan to watch what was read."""
    return WatchPlan(
        files=frozenset(config.files),
        directories=config.directories,
        patterns=frozenset(config.globs),
        trees=config.trees,
        present=frozenset(path for path, digest in config.files.items() if digest),
    )


def watch_dependencies(root: Path, dependencies: FileDependencies) -> WatchPlan:
    """Plan to watch what was compiled in beside that, and the lock."""
    return WatchPlan(
        files=frozenset({*dependencies.files, root / LOCK_NAME}),
        trees=frozenset(dependencies.trees),
        globs=frozenset(dependencies.globs),
        present=frozenset({*dependencies.trees, *(Path(globs.root) for globs in dependencies.globs)}),
    )


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The states of all places of a plan."""

    plan: WatchPlan = msgspec.field(default_factory=WatchPlan)
    taken_at: int
    """The time before the first of them was looked at, in ns since the epoch."""
    states: Mapping[str, State] = msgspec.field(default_factory=dict)

    def differs_from(self, earlier: "Snapshot") -> bool:
        """Say whether something was changed between the earlier snapshot and this one. Blocking.

        Paths of only one of the plans were not looked at both times: one that is new to this plan counts if it was
        changed since the earlier snapshot or is gone, and one that only the earlier plan has counts if it is gone.
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
        """The time of the last change, of links that lead there too; of a directory that has taken a file's place."""
        inode, changed_at, _, place = self.states[path]
        # Links in a circle have no inode here, for `stat` has failed on them: what `_links` follows has an end.
        if inode and place != path:
            return max((changed_at, *(link.st_ctime_ns for link in _links(Path(path)))))
        if not inode or changed_at or not path.endswith(self.plan.suffixes):
            return changed_at
        try:
            return os.stat(path).st_ctime_ns  # noqa: PTH116 - as below
        except OSError:
            return 0


def _links(path: Path) -> Iterator[os.stat_result]:
    """Yield the links by which a path leads to what is there."""
    for part in (*reversed(path.parents), path):
        if part.is_symlink():
            yield part.lstat()
            yield from _links(part.parent / part.readlink() / path.relative_to(part))
            return


def _fits(name: str, pattern: str) -> bool:
    """Match a name as `glob` does, which skips hidden files."""
    return fnmatchcase(name, pattern) and name.startswith(".") <= pattern.startswith(".")


def _walk(root: str) -> Iterator[str]:
    """Yield a directory, and all that is in it and below."""
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
    """Yield the files that the globs match, and the directories on the way."""
    root = str(globs.root)
    yield root
    waiting = [(root, globs.start, 1)]
    while waiting:
        directory, places, depth = waiting.pop()
        for entry in _scan(directory):
            after = globs.after(places, entry.name)
            if after and entry.is_dir(follow_symlinks=False):
                yield entry.path
                if depth < MAX_DEPTH:
                    waiting.append((entry.path, after, depth + 1))
            elif after and globs.accepts(after):
                yield entry.path


def _leads(globs: Globs, path: str) -> bool:
    """Say whether the globs match `path`, or may match something below it."""
    if not Path(path).is_relative_to(globs.root):
        return False
    places = globs.start
    for name in Path(path).relative_to(globs.root).parts:
        places = globs.after(places, name)
    return bool(places)


def _scan(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []


def _state(path: str) -> State:
    try:
        status = os.stat(path)  # noqa: PTH116 - names that are not UTF-8 stay plain strings throughout
        leads_to = os.path.realpath(path)
    except (OSError, ValueError):  # no path has a NUL
        return _MISSING
    if stat.S_ISDIR(status.st_mode):  # its entries are looked at one by one; its own times move with any of them
        return (status.st_ino, 0, 0, leads_to)
    return (status.st_ino, status.st_ctime_ns, status.st_size, leads_to)
