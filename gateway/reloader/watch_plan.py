"""What to watch, and what it looked like when last seen. Reads directories and states of files, never contents.

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

from gateway.config.path_kinds import is_directory
from gateway.config.reading.file_pattern import FilePattern
from gateway.executors.files.globs import Globs, Places

State = tuple[int, int, int, str]
"""Inode, time of the last change in ns, size in bytes, and where the path leads once links are resolved.

The inode's own time, not that of its contents: it moves with a rename and with permissions too, and nobody sets it.
"""

_MISSING: Final[State] = (0, 0, 0, "")
_NOISE: Final = frozenset({"__pycache__", ".git", ".hg", "node_modules"})
"""Written beside what matters, by interpreters and version control."""


@dataclass(frozen=True, kw_only=True)
class WatchPlan:
    """Single files, directories that may come and go, patterns of new files, and directories with everything below."""

    files: frozenset[Path] = frozenset()
    directories: frozenset[Path] = frozenset()
    patterns: frozenset[FilePattern] = frozenset()
    """A file that appears under one matters, and one that appears beside it does not. Deep ones are left to `trees`."""
    suffixes: tuple[str, ...] = (".yaml", ".yml", ".md")
    """Endings of the files that patterns mean."""
    trees: frozenset[Path] = frozenset()
    globs: frozenset[Globs] = frozenset()
    """Directories in which only what these mean matters, and what lies on the way to it."""
    present: frozenset[Path] = field(default=frozenset(), compare=False)
    """What was there when the files were read that this plan comes from."""
    most_entries: int = 100_000
    """A tree larger than this is watched by events alone."""

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
        """Whether an event on `path` makes a look worth it. A log that grows beside the files must not."""
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
        """The files behind links: one is written where it lies."""
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
        taken_at = time.time_ns()
        found: dict[str, State] = {}
        for path in self._paths():
            if len(found) >= self.most_entries:
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
            yield from _meant(globs, globs.root, globs.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a plan's places looked like."""

    plan: WatchPlan = field(default_factory=WatchPlan)
    taken_at: int
    """When the first of them was looked at, in ns since the epoch."""
    states: Mapping[str, State] = field(default_factory=dict)

    def differs_from(self, earlier: "Snapshot") -> bool:
        """Whether something was changed between the earlier look and this one. Blocking.

        What the plans do not share was not looked at both times: of that, what is new to this plan counts if it was
        changed since the earlier look or has gone since, and what this plan has left out counts if it is gone.
        """
        if self.plan == earlier.plan:
            return self.states != earlier.states
        shared = self.states.keys() & earlier.states.keys()
        new, left_out = self.states.keys() - shared, earlier.states.keys() - shared
        return (
            any(self.states[path] != earlier.states[path] for path in shared)
            or any(_changed_at(self.states[path]) >= earlier.taken_at for path in new)
            or any(self.states[path] == _MISSING for path in new & set(map(str, self.plan.present)))
            or any(_state(path) == _MISSING != earlier.states[path] for path in left_out)
        )


def _fits(name: str, pattern: str) -> bool:
    """As `glob` has it, to which hidden files are none."""
    return fnmatchcase(name, pattern) and name.startswith(".") <= pattern.startswith(".")


def _changed_at(state: State) -> int:
    return state[1]


def _walk(directory: str) -> Iterator[str]:
    yield directory
    for entry in _scan(directory):
        if entry.name in _NOISE:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path)
        else:
            yield entry.path


def _meant(globs: Globs, directory: str, places: Places) -> Iterator[str]:
    """What the globs mean below a directory at which they stand at `places`, and the directories on the way."""
    yield directory
    for entry in _scan(directory):
        after = globs.after(places, entry.name)
        if after and entry.is_dir(follow_symlinks=False):
            yield from _meant(globs, entry.path, after)
        elif after and globs.accepts(after):
            yield entry.path


def _leads(globs: Globs, path: str) -> bool:
    """Whether the globs mean `path`, or something that may lie below it."""
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
