"""The files and directories that a catalog depends on, besides the configuration files."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gateway.config.diagnostics.problems import Problems
from gateway.executors.files.globs import Globs
from gateway.json_types import empty

ResolvedRoot = tuple[str, frozenset[str]]
"""The path of a directory with resolved links, and all symbolic links in the original path."""


class FileDependencies(msgspec.Struct, frozen=True):
    """Collects paths during compilation. The collection is complete even if compilation fails."""

    files: set[Path] = msgspec.field(default_factory=set)
    trees: set[Path] = msgspec.field(default_factory=set)
    """Plugin directories, watched recursively."""
    globs: set[Globs] = msgspec.field(default_factory=set)
    """Globs of `files:`. Only changes of matching files trigger a reload."""
    roots: dict[str, ResolvedRoot] = msgspec.field(default_factory=dict)
    served_roots: Mapping[str, ResolvedRoot] = msgspec.field(default_factory=empty)

    def add_root(self, root: str, *, resolved: str, problems: Problems) -> None:
        """Add a root directory. Report an error if a new symbolic link makes the root lead to a different directory.

        Links that existed at the last load can change their target, because operators switch directories that way.
        """
        links = frozenset(path for path in (root, *map(str, Path(root).parents)) if os.path.islink(path))  # noqa: PTH114
        self.files.add(Path(root))
        self.roots[root] = resolved, links
        served, served_links = self.served_roots.get(root, (resolved, links))
        if resolved != served and (new := links - served_links):
            problems.error(
                f"`{max(new)}` has become a symbolic link, so {root} {resolved}. Restart the gateway to accept this"
            )
