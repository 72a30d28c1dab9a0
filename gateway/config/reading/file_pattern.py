"""A pattern of `include` or `prompt_files`, and the directory below which it begins: a name, whatever is in it."""

import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class FilePattern:
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
        """Whether it may mean files of more than one directory."""
        return "/" in self.pattern or self.pattern == "**"

    def found(self) -> Iterator[Path]:
        """What there is now."""
        found = glob.glob(self.pattern, root_dir=self.directory, recursive=True)  # noqa: PTH207 - pathlib's take hidden files, and no `..`
        yield from (_joined(self.directory, each) for each in found)


def _joined(directory: Path, step: str) -> Path:
    return Path(os.path.normpath(directory / step))
