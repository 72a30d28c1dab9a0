"""What on disk a catalog depends on, beside the files that the loader read."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Footprint:
    """Filled in while a catalog is compiled, so that it is known of one that has mistakes too."""

    files: set[Path] = field(default_factory=set)
    trees: set[Path] = field(default_factory=set)
    """Directories with everything below them: those of plugins, and the roots of `files:`."""
