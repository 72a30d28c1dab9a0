"""The files and directories that a catalog depends on, besides the configuration files."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gateway.config.diagnostics.problems import Problems
from gateway.executors.files.globs import Globs
from gateway.json_types import empty

RootPlace = tuple[str, frozenset[str]]
"""The real path of a directory, and the components of its path that are symbolic links."""


class FileDependencies(msgspec.Struct, frozen=True):
    """Collects paths during compilation. The collection is complete even if compilation fails."""

    files: set[Path] = msgspec.field(default_factory=set)
    trees: set[Path] = msgspec.field(default_factory=set)
    """Plugin directories, watched recursively."""
    globs: set[Globs] = msgspec.field(default_factory=set)
    """Globs of `files:`. Only changes of matching files trigger a reload."""
    roots: dict[str, RootPlace] = msgspec.field(default_factory=dict)
    served_roots: Mapping[str, RootPlace] = msgspec.field(default_factory=empty)

    def add_root(self, root: str, *, place: str, problems: Problems) -> None:
        """Add a root directory. Report an error if a symbolic link created since the last load redirects the directory.

        Links from earlier loads can change their targets, because operators switch directories that way.
        """
        links = frozenset(path for path in (root, *map(str, Path(root).parents)) if os.path.islink(path))  # noqa: PTH114
        self.files.add(Path(root))
        self.roots[root] = place, links
        served_place, served_links = self.served_roots.get(root, (place, links))
        if place != served_place and (new := links - served_links):
            problems.error(
                f"`{max(new)}` has become a symbolic link, so {root} is now {place}; restart if this is intended"
            )
