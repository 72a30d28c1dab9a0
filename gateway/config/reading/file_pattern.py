"""File names and globs in `include`, `prompt_files` and `mcp_json`."""

import glob
import os
from collections.abc import Iterator
from fnmatch import fnmatch
from itertools import islice, pairwise
from pathlib import Path
from typing import Final

import msgspec

from gateway.config.reading.source_file import UnreadableError

MOST_ENTRIES: Final = 100_000
"""Maximum number of directory entries to search for one pattern."""


class FilePattern(msgspec.Struct, frozen=True):
    directory: Path
    """Absolute path where the search starts."""
    pattern: str
    """Glob relative to the directory."""

    @classmethod
    def parse(cls, text: str, *, directory: Path) -> "FilePattern":
        """Parse a pattern, which can be relative to `directory`."""
        text = os.path.expanduser(text)  # noqa: PTH111 - Path.expanduser raises for an unknown user
        if text.startswith("/"):
            directory = Path("/")
        steps = [step for step in text.split("/") if step not in {"", "."}]
        while len(steps) > 1 and not glob.has_magic(steps[0]):
            directory = _joined(directory, steps.pop(0))
        return cls(directory, "/".join(steps))

    @property
    def path(self) -> Path | None:
        """Path of the file, or None for a pattern with wildcards."""
        return None if glob.has_magic(self.pattern) else _joined(self.directory, self.pattern)

    @property
    def is_deep(self) -> bool:
        """Whether the pattern can match files in several directories."""
        return "/" in self.pattern or self.pattern == "**"

    def found(self) -> list[Path]:
        """Return the matching files without duplicates.

        Raises:
            UnreadableError: the search exceeds `MOST_ENTRIES`.
        """
        # `**/**` equals `**` but would be searched twice.
        steps = [step for step, after in pairwise([*self.pattern.split("/"), ""]) if (step, after) != ("**", "**")]
        found = _Walk().paths(str(self.directory), tuple(steps))
        return list(dict.fromkeys(Path(os.path.normpath(path)) for path in found))


class _Walk:
    """Finds files like `glob.glob(…, recursive=True)`, but with a limit.

    `Path.glob` would include hidden files, and does not support `..`.
    """

    def __init__(self) -> None:
        self._left = MOST_ENTRIES
        self._entered: set[tuple[int, int, int]] = set()
        """Device, inode and remaining steps of each search for `**`, because symbolic links can form cycles."""

    def paths(self, directory: str, steps: tuple[str, ...]) -> Iterator[str]:
        if not steps:
            yield directory
        elif steps[0] == "**":
            yield from self._below(directory, steps)
        elif glob.has_magic(steps[0]):
            for entry in self._entries(directory):
                # As in a shell, only a pattern with a leading dot matches hidden names.
                is_shown = entry.name.startswith(".") <= steps[0].startswith(".")
                if fnmatch(entry.name, steps[0]) and is_shown and (not steps[1:] or _is_directory(entry)):
                    yield from self.paths(entry.path, steps[1:])
        # Like `glob`, include dangling links. Reading such a link reports the error.
        elif steps[1:] or os.path.lexists(f"{directory}/{steps[0]}"):
            yield from self.paths(f"{directory}/{steps[0]}", steps[1:])

    def _below(self, directory: str, steps: tuple[str, ...]) -> Iterator[str]:
        """Yield the matches of a pattern that starts with `**`, in a directory and all its visible subdirectories."""
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

    def _entries(self, directory: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(directory) as scan:
                # Read one entry more than allowed, to detect that the limit is exceeded.
                entries = list(islice(scan, self._left + 1))
        except OSError:
            return []
        self._left -= len(entries)
        if self._left < 0:
            most = f"{MOST_ENTRIES:,} files and directories"
            raise UnreadableError(f"searches more than {most}. Use a more specific directory")
        # File systems return entries in different orders.
        return sorted(entries, key=lambda entry: entry.name)


def _joined(directory: Path, step: str) -> Path:
    return Path(os.path.normpath(directory / step))


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a cycle of links
        return False
