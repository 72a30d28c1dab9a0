"""A pattern of `include` or `prompt_files`, and the directory below which it begins: a name, whatever is in it."""

import glob
import os
from collections.abc import Iterator
from fnmatch import fnmatch
from itertools import islice, pairwise
from pathlib import Path
from typing import Final

import msgspec

MOST_ENTRIES: Final = 100_000
"""Directory entries that one pattern may lead through."""


class FilePattern(msgspec.Struct, frozen=True):
    """Files that belong to the configuration, also those that are yet to be made."""

    directory: Path
    """Absolute. That of the file that has the pattern, and the pattern's own steps before the first wildcard."""
    pattern: str
    """As `glob` has it, relative to the directory."""

    @classmethod
    def parse(cls, text: str, *, directory: Path) -> "FilePattern":
        """Read what a file in `directory` says."""
        text = os.path.expanduser(text)  # noqa: PTH111 - Path.expanduser raises for a user that is not there
        if text.startswith("/"):
            directory = Path("/")
        steps = [step for step in text.split("/") if step not in {"", "."}]
        while len(steps) > 1 and not glob.has_magic(steps[0]):
            directory = _joined(directory, steps.pop(0))
        return cls(directory, "/".join(steps))

    @property
    def path(self) -> Path | None:
        """The one file, where there is no wildcard."""
        return None if glob.has_magic(self.pattern) else _joined(self.directory, self.pattern)

    @property
    def is_deep(self) -> bool:
        """Whether it may match files of more than one directory."""
        return "/" in self.pattern or self.pattern == "**"

    def found(self) -> list[Path]:
        """The files that match now, each once.

        Raises:
            TooManyEntriesError: more than `MOST_ENTRIES` would have to be looked at.
        """
        # `**/**` means no more than `**`, and would be walked once for each.
        steps = [step for step, after in pairwise([*self.pattern.split("/"), ""]) if (step, after) != ("**", "**")]
        found = _Walk().paths(str(self.directory), tuple(steps))
        return list(dict.fromkeys(Path(os.path.normpath(path)) for path in found))


class TooManyEntriesError(Exception):
    """A pattern leads through more of the file system than a configuration can mean."""


class _Walk:
    """Finds what `glob.glob(…, recursive=True)` does, and gives up where that would go on for minutes.

    Why not pathlib's: it takes hidden files, and no `..`.
    """

    def __init__(self) -> None:
        self._left = MOST_ENTRIES
        self._entered: set[tuple[int, int, int]] = set()
        """Directories in which `**` began, by device, inode and the steps that were left: links may lead in circles."""

    def paths(self, directory: str, steps: tuple[str, ...]) -> Iterator[str]:
        if not steps:
            yield directory
        elif steps[0] == "**":
            yield from self._below(directory, steps)
        elif glob.has_magic(steps[0]):
            for entry in self._entries(directory):
                # As in a shell, hidden names fit only a pattern that begins with a dot of its own.
                if fnmatch(entry.name, steps[0]) and entry.name.startswith(".") <= steps[0].startswith("."):
                    yield from self._on(entry, steps[1:])
        # As `glob` has it: a link that leads nowhere is found, and reported when it is read.
        elif steps[1:] or os.path.lexists(f"{directory}/{steps[0]}"):
            yield from self.paths(f"{directory}/{steps[0]}", steps[1:])

    def _below(self, directory: str, steps: tuple[str, ...]) -> Iterator[str]:
        """`**`: any number of directories that are not hidden, and at the end of a pattern the files in them."""
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
                # One more than is left tells that there are too many.
                entries = list(islice(scan, self._left + 1))
        except OSError:
            return []
        self._left -= len(entries)
        if self._left < 0:
            raise TooManyEntriesError
        # The order that a file system gives differs between machines.
        return sorted(entries, key=lambda entry: entry.name)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link that leads round in a circle


def _joined(directory: Path, step: str) -> Path:
    return Path(os.path.normpath(directory / step))
