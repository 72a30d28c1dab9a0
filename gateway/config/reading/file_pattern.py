"""A file name or glob pattern of `include` or `prompt_files`."""

import glob
import os
from collections.abc import Iterator
from fnmatch import fnmatch
from itertools import islice, pairwise
from pathlib import Path
from typing import Final

import msgspec

MOST_ENTRIES: Final = 100_000
"""Maximum number of directory entries that one pattern can search."""


class FilePattern(msgspec.Struct, frozen=True):
    """Existing and future files that belong to the configuration."""

    directory: Path
    """Absolute path of the directory in which the search starts, without wildcards."""
    pattern: str
    """Glob pattern relative to the directory."""

    @classmethod
    def parse(cls, text: str, *, directory: Path) -> "FilePattern":
        """Parse the text from a file in `directory`."""
        text = os.path.expanduser(text)  # noqa: PTH111 - Path.expanduser raises for a user that is not there
        if text.startswith("/"):
            directory = Path("/")
        steps = [step for step in text.split("/") if step not in {"", "."}]
        while len(steps) > 1 and not glob.has_magic(steps[0]):
            directory = _joined(directory, steps.pop(0))
        return cls(directory, "/".join(steps))

    @property
    def path(self) -> Path | None:
        """The path of the file, or None if the pattern has wildcards."""
        return None if glob.has_magic(self.pattern) else _joined(self.directory, self.pattern)

    @property
    def is_deep(self) -> bool:
        """Whether the pattern can match files in several directories."""
        return "/" in self.pattern or self.pattern == "**"

    def found(self) -> list[Path]:
        """Return the matching files without duplicates.

        Raises:
            TooManyEntriesError: the search exceeds `MOST_ENTRIES`.
        """
        # `**/**` means the same as `**` but would be searched twice.
        steps = [step for step, after in pairwise([*self.pattern.split("/"), ""]) if (step, after) != ("**", "**")]
        found = _Walk().paths(str(self.directory), tuple(steps))
        return list(dict.fromkeys(Path(os.path.normpath(path)) for path in found))


class TooManyEntriesError(Exception):
    """A pattern searches too large a part of the file system."""


class _Walk:
    """Finds the same files as `glob.glob(…, recursive=True)`, with a limit.

    pathlib would include hidden files and does not support `..`.
    """

    def __init__(self) -> None:
        self._left = MOST_ENTRIES
        self._entered: set[tuple[int, int, int]] = set()
        """Directories in which `**` started, by device, inode and remaining steps. Symbolic links can form cycles."""

    def paths(self, directory: str, steps: tuple[str, ...]) -> Iterator[str]:
        if not steps:
            yield directory
        elif steps[0] == "**":
            yield from self._below(directory, steps)
        elif glob.has_magic(steps[0]):
            for entry in self._entries(directory):
                # As in a shell, wildcards match hidden names only if the pattern starts with a dot.
                if fnmatch(entry.name, steps[0]) and entry.name.startswith(".") <= steps[0].startswith("."):
                    yield from self._on(entry, steps[1:])
        # Like `glob`, include dangling links. Reading them reports the error.
        elif steps[1:] or os.path.lexists(f"{directory}/{steps[0]}"):
            yield from self.paths(f"{directory}/{steps[0]}", steps[1:])

    def _below(self, directory: str, steps: tuple[str, ...]) -> Iterator[str]:
        """Match `**`: any number of directories that are not hidden, and at the end of a pattern their files."""
        try:
            found = os.stat(directory)  # noqa: PTH116 - names that are not UTF-8 stay plain strings throughout
        except OSError:
            return
        identity = found.st_dev, found.st_ino, len(steps)
        if identity in self._entered:
            return
        self._entered.add(identity)
        if steps[1:]:
            yield from self.paths(directory, steps[1:])
        for entry in self._entries(directory):
            if entry.name.startswith("."):
                continue
            if _is_directory(entry):
                yield from self.paths(entry.path, steps)
            elif not steps[1:]:
                yield entry.path

    def _on(self, entry: os.DirEntry[str], steps: tuple[str, ...]) -> Iterator[str]:
        if not steps or _is_directory(entry):
            yield from self.paths(entry.path, steps)

    def _entries(self, directory: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(directory) as scan:
                # One more than the limit is enough to detect the excess.
                entries = list(islice(scan, self._left + 1))
        except OSError:
            return []
        self._left -= len(entries)
        if self._left < 0:
            raise TooManyEntriesError
        # Directory order differs between file systems.
        return sorted(entries, key=lambda entry: entry.name)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link that leads round in a circle


def _joined(directory: Path, step: str) -> Path:
    return Path(os.path.normpath(directory / step))
