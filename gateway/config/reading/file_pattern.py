"""File names and globs in `include`, `prompt_files` and `mcp_json`."""

import glob
import os
import re
from collections.abc import Iterator, Sequence
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
        """Return the matching files without duplicates, sorted.

        Raises:
            UnreadableError: the search exceeds `MOST_ENTRIES`.
        """
        # `**/**` equals `**` but would be searched twice.
        steps = re.sub(r"(?<![^/])\*\*(/\*\*)+(?=/|$)", "**", self.pattern).split("/")
        found = _Search().paths(str(self.directory), steps)
        return sorted({Path(os.path.normpath(path)) for path in found})


class _Search:
    """Finds files like `glob.glob(…, recursive=True)`, but with a limit for `**`.

    `Path.glob` would include hidden files, and does not support `..`.
    """

    def __init__(self) -> None:
        self._left = MOST_ENTRIES
        self._entered: set[tuple[int, int, int]] = set()
        """Device, inode and remaining steps of each directory, because symbolic links can form cycles."""

    def paths(self, directory: str, steps: Sequence[str]) -> Iterator[str]:
        if "**" not in steps:
            yield from (f"{directory}/{each}" for each in glob.iglob("/".join(steps), root_dir=directory))  # noqa: PTH207
            return
        deep = steps.index("**")
        after = steps[deep + 1 :]
        for start in sorted(self.paths(directory, steps[:deep])) if deep else [directory]:
            for below, names in self._directories(start, len(after)):
                yield from self.paths(below, after) if after else (f"{below}/{name}" for name in names)

    def _directories(self, start: str, remaining: int) -> Iterator[tuple[str, Sequence[str]]]:
        """Yield `start` and all its visible subdirectories, each with the visible files in it."""
        for directory, directories, names in os.walk(start, followlinks=True):
            self._left -= len(directories) + len(names)
            if self._left < 0:
                most = f"{MOST_ENTRIES:,} files and directories"
                raise UnreadableError(f"searches more than {most}. Use a more specific directory")
            try:
                found = os.stat(directory)  # noqa: PTH116 - names that are not UTF-8 stay plain strings throughout
            except OSError:  # removed in the meantime
                continue
            identity = found.st_dev, found.st_ino, remaining
            # File systems return entries in different orders, and only the first path of a directory counts.
            directories[:] = sorted(name for name in directories if not name.startswith("."))
            if identity in self._entered:
                directories.clear()
            else:
                self._entered.add(identity)
                yield directory, [name for name in names if not name.startswith(".")]


def _joined(directory: Path, step: str) -> Path:
    return Path(os.path.normpath(directory / step))
