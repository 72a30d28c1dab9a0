"""The files and directories that a catalog depends on, beside those that the loader read."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from gateway.config.diagnostics.problems import Problems
from gateway.config.machine_facts import is_link
from gateway.executors.files.globs import Globs
from gateway.json_types import empty


class RootPlace(msgspec.Struct, frozen=True):
    """The place of a directory that bounds what callers reach, when the configuration was read."""

    place: str
    """The real path, without symbolic links."""
    links: frozenset[str]
    """The parts of the path that are symbolic links."""


class FileDependencies(msgspec.Struct, frozen=True):
    """Filled in while a catalog is compiled, so that they are known also where there are errors."""

    files: set[Path] = msgspec.field(default_factory=set)
    trees: set[Path] = msgspec.field(default_factory=set)
    """Directories with everything below them: those of plugins."""
    globs: set[Globs] = msgspec.field(default_factory=set)
    """The globs of `files:`; changes of files that they do not match are no reason to reload."""
    roots: dict[str, RootPlace] = msgspec.field(default_factory=dict)
    """Directories of `files:` and `within:`."""
    served_roots: Mapping[str, RootPlace] = msgspec.field(default_factory=empty)
    """The roots of the live configuration."""

    def add_root(self, root: str, *, place: str, problems: Problems) -> None:
        """Add a root. A directory that has become a link is an error: the file did not ask for what it leads to.

        A link that only leads elsewhere than before is taken: an operator put the link there, to change it.
        """
        links = frozenset(path for path in (root, *map(str, Path(root).parents)) if is_link(path))
        self.files.add(Path(root))
        self.roots[root] = RootPlace(place, links)
        served = self.served_roots.get(root)
        if served is not None and place != served.place and (new := links - served.links):
            problems.error(
                f"`{max(new)}` has become a link, so that {root} lies at {place} now; restart if that is intended"
            )
