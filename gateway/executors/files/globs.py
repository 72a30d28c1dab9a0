"""Matches paths below a directory against globs, and lists the matching files.

`*`, `?` and `[…]` match characters of one name, and `**` matches any number of directories. Names with a leading dot
never match. Matching takes at most (length of the pattern) × (length of the path) steps.
"""

import fnmatch
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Final, Protocol, TypeAlias

import msgspec

from gateway.executors.files.regular_files import (
    FileFacts,
    NotServedError,
    directory_beneath,
    facts_beneath,
    facts_in,
    read_beneath,
)

_WILDCARD: Final = re.compile(r"[*?\[]")
_MAX_ENTRIES: Final = 1_000_000
"""The maximum number of directory entries that one listing reads."""

_Segment: TypeAlias = re.Pattern[str] | None

MatchState: TypeAlias = frozenset[tuple[int, int]]
"""The progress of a match: pairs of a pattern's index and the number of its segments that have matched."""


def split_glob(glob: str) -> tuple[str, str]:
    """Split a glob into a directory without wildcards, and a pattern relative to this directory.

    The pattern has at least one name: `docs/guide.md` is split into `docs` and `guide.md`.
    """
    names = glob.split("/")
    first = next((i for i, name in enumerate(names) if _WILDCARD.search(name)), len(names) - 1)
    directory = "/".join(names[:first])
    return directory or ("/" if glob.startswith("/") else "."), "/".join(names[first:])


def compile_globs(root: str, patterns: Iterable[str]) -> "Globs":
    return Globs(root, os.path.realpath(root), compile_patterns(patterns))


def compile_patterns(patterns: Iterable[str]) -> "GlobPatterns":
    """Compile patterns. The patterns must not contain empty, `.` or `..` segments."""
    # Since Python 3.9, patterns from `fnmatch.translate` match without exponential backtracking.
    return GlobPatterns(
        tuple(
            tuple(None if name == "**" else re.compile(fnmatch.translate(name)) for name in pattern.split("/"))
            for pattern in patterns
        )
    )


class Found(msgspec.Struct, frozen=True):
    path: str
    """The path relative to the root. Bytes that are not UTF-8 are surrogate escapes (PEP 383)."""
    facts: FileFacts


class Listing(msgspec.Struct, frozen=True):
    files: tuple[Found, ...]
    """The matching files, sorted by path."""
    is_incomplete: bool
    """Whether files are missing, because there were too many files or directory entries."""
    unreadable: tuple[str, ...]
    """Directories that could not be listed. The root is listed as an empty string."""
    directories: tuple[str, ...]
    """Directories that can contain matching files. The root is listed as an empty string."""
    refused: tuple[str, ...]
    """Links that lead outside the root or to a file that is not served."""


# `cached_property` requires `dict=True`.
class GlobPatterns(msgspec.Struct, frozen=True, dict=True):
    """Matches relative paths against patterns, without access to any storage."""

    alternatives: tuple[tuple[_Segment, ...], ...]

    def matches(self, path: str) -> bool:
        """Return whether any pattern matches the path. The path must not contain empty, `.` or `..` segments."""
        if len(path) > 4096:  # PATH_MAX of Linux
            return False
        state = self.start
        for name in path.split("/"):
            state = self.after(state, name)
        return self.accepts(state)

    @cached_property
    def start(self) -> MatchState:
        """The state before the first name of a path."""
        return _settled(self.alternatives, ((number, 0) for number in range(len(self.alternatives))))

    def after(self, state: MatchState, name: str) -> MatchState:
        """Return the state after a name. An empty state means that no path below this name can match."""
        return frozenset() if name.startswith(".") else _settled(self.alternatives, self._steps(state, name))

    def accepts(self, state: MatchState) -> bool:
        return any(matched == len(self.alternatives[number]) for number, matched in state)

    def _steps(self, state: MatchState, name: str) -> Iterator[tuple[int, int]]:
        for number, matched in state:
            if matched == len(self.alternatives[number]):
                continue
            segment = self.alternatives[number][matched]
            if segment is None:
                yield number, matched
            elif segment.fullmatch(name):
                yield number, matched + 1


class GlobSource(Protocol):
    """Lists and reads files that match globs, in a directory or in remote storage."""

    @property
    def root(self) -> str: ...
    @property
    def patterns(self) -> GlobPatterns: ...
    def location(self, path: str) -> str:
        """Return the full path or URI of a file, for explanations."""

    def listing(self, *, at_most: int) -> Listing:
        """List the matching files. This method blocks."""

    def read(self, path: str, *, max_size: int) -> bytes:
        """Read a file. This method blocks.

        Raises:
            NotServedError: the file does not exist, or is not served.
            TooLargeError: the file is larger than `max_size`.
            ExecutionError or OSError: the file cannot be read.
        """


class Globs(msgspec.Struct, frozen=True):
    root: str
    real_root: str
    """The path of the root at load, with all links resolved. A link that later replaces the root is not followed."""
    patterns: GlobPatterns

    def location(self, path: str) -> str:
        return os.path.normpath(f"{self.root}/{path}")

    def listing(self, *, at_most: int) -> Listing:
        """List the matching regular files. This method blocks.

        Links are followed only to targets below the root. Each directory is entered once, even through several links.
        """
        return _Walk(self).listing(at_most=at_most)

    def read(self, path: str, *, max_size: int) -> bytes:
        return read_beneath(self.real_root, path, max_size=max_size)


def _settled(patterns: Sequence[Sequence[_Segment]], state: Iterable[tuple[int, int]]) -> MatchState:
    """Add the states that skip a `**` segment, because `**` can match zero directories."""
    settled = set()
    for number, matched in state:
        settled.add((number, matched))
        while matched < len(patterns[number]) and patterns[number][matched] is None:
            matched += 1  # noqa: PLW2901 - continues from the new state
            settled.add((number, matched))
    return frozenset(settled)


class _Walk:
    """Lists matching files. Visits real directories before links, so that files are listed under their real path."""

    def __init__(self, globs: Globs) -> None:
        self._globs = globs
        self._pending = deque([("", globs.patterns.start)])
        """Pending directories relative to the root, with their matching states."""
        self._entered: set[tuple[int, int]] = set()
        self._entries_left = _MAX_ENTRIES
        self._unreadable: list[str] = []
        self._directories: list[str] = []
        self._refused: list[str] = []

    def listing(self, *, at_most: int) -> Listing:
        # Find one file more than `at_most`, to know whether the listing is complete.
        files = list(islice(self._files(), min(at_most, _MAX_ENTRIES) + 1))
        return Listing(
            files=tuple(sorted(files[:at_most], key=lambda file: file.path)),
            is_incomplete=len(files) > at_most or self._entries_left == 0,
            unreadable=tuple(self._unreadable),
            directories=tuple(sorted(self._directories)),
            refused=tuple(self._refused),
        )

    def _files(self) -> Iterator[Found]:
        while self._pending:
            yield from self._enter(*self._pending.popleft())

    def _enter(self, directory: str, state: MatchState) -> Iterator[Found]:
        try:
            with directory_beneath(self._globs.real_root, directory) as descriptor:
                yield from self._found(descriptor, directory, state)
        except NotServedError:
            self._refused.append(directory)
        except OSError:
            self._unreadable.append(directory)

    def _found(self, descriptor: int, directory: str, state: MatchState) -> Iterator[Found]:
        if (entries := self._entries(descriptor)) is None:
            return
        self._directories.append(directory)
        for entry in entries:
            path = f"{directory}/{entry.name}" if directory else entry.name
            here = self._globs.patterns.after(state, entry.name)
            if not here:
                continue
            if _is_directory(entry):
                (self._pending.append if entry.is_symlink() else self._pending.appendleft)((path, here))
            elif self._globs.patterns.accepts(here):
                if facts := self._facts_of(entry, path):
                    yield Found(path, facts)
                elif entry.is_symlink():
                    self._refused.append(path)

    def _entries(self, descriptor: int) -> list[os.DirEntry[str]] | None:
        """List a directory. Return None if the walk has already entered this directory."""
        found = os.fstat(descriptor)
        # Compare device and inode numbers, so that cycles of links end.
        identity = found.st_dev, found.st_ino
        if identity in self._entered:
            return None
        self._entered.add(identity)
        with os.scandir(descriptor) as scan:
            entries = [entry for _, entry in zip(range(self._entries_left), scan, strict=False)]
        self._entries_left -= len(entries)
        return sorted(entries, key=lambda entry: entry.name)

    def _facts_of(self, entry: os.DirEntry[str], path: str) -> FileFacts | None:
        if entry.is_symlink():
            return facts_beneath(self._globs.real_root, path)
        try:
            return facts_in(entry.stat(follow_symlinks=False))
        # The file was removed after the directory was listed.
        except OSError:
            return None


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a cycle of links
