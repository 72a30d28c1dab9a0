"""What on disk a catalog depends on, beside the files that the loader read."""

from dataclasses import dataclass, field
from pathlib import Path

from gateway.executors.files.globs import Globs


@dataclass(frozen=True, slots=True)
class Footprint:
    """Filled in while a catalog is compiled, so that it is known of one that has mistakes too."""

    files: set[Path] = field(default_factory=set)
    trees: set[Path] = field(default_factory=set)
    """Directories with everything below them: those of plugins."""
    globs: set[Globs] = field(default_factory=set)
    """Those of `files:`: what they do not mean may change as it likes."""
