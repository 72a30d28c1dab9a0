"""Files and directories that a catalog depends on, in addition to the configuration files."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from gateway.config.diagnostics.problems import Problems
from gateway.config.machine_facts import is_link
from gateway.executors.files.globs import Globs
from gateway.json_types import empty


class RootPlace(msgspec.Struct, frozen=True):
    """The location of a root directory when the configuration was read."""

    place: str
    """Path without symbolic links."""
    links: frozenset[str]
    """Components of the path that are symbolic links."""


class FileDependencies(msgspec.Struct, frozen=True):
    """Collected during compilation, so that the dependencies are also known after errors."""

    files: set[Path] = msgspec.field(default_factory=set)
    trees: set[Path] = msgspec.field(default_factory=set)
    """Directories to watch recursively: those of plugins."""
    globs: set[Globs] = msgspec.field(default_factory=set)
    """Globs of `files:`. Changes of files that do not match do not trigger a reload."""
    roots: dict[str, RootPlace] = msgspec.field(default_factory=dict)
    """Directories of `files:` and `within:`."""
    served_roots: Mapping[str, RootPlace] = msgspec.field(default_factory=empty)
    """Roots of the served configuration."""

    def add_root(self, root: str, *, place: str, problems: Problems) -> None:
        """Add a root directory. It is an error if a directory of its path was replaced by a symbolic link.

        An existing link may point somewhere else, because an operator created it.
        """
        links = frozenset(path for path in (root, *map(str, Path(root).parents)) if is_link(path))
        self.files.add(Path(root))
        self.roots[root] = RootPlace(place, links)
        served = self.served_roots.get(root)
        if served is not None and place != served.place and (new := links - served.links):
            problems.error(
                f"`{max(new)}` has become a link, so that {root} lies at {place} now; restart if that is intended"
            )
