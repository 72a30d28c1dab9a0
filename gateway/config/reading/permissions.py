"""Warns of files that every user of the machine may change. Looks at permissions alone.

Threat: who may write to the file, to a plugin, or to the directory in which it lies, runs commands as the daemon.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from gateway.config.machine_facts import machine_fact
from gateway.config.reading.nodes import Diagnostic, Place
from gateway.config.reading.source_file import SourceFile
from gateway.errors import Severity


@machine_fact
def open_to_all(path: Path) -> str | None:
    """Say that every user may write to a file, or to a directory (one with the sticky bit is nobody's else)."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - pathlib's raises where a name has a NUL
    except (OSError, ValueError):
        return None
    # inode(7): where this bit is set, as on /tmp, others cannot remove or rename what is not theirs.
    is_shared = stat.S_ISDIR(mode) and bool(mode & stat.S_ISVTX)
    if not mode & stat.S_IWOTH or is_shared or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return None
    what = "directory" if stat.S_ISDIR(mode) else "file"
    return f"every user of this machine may change this {what}: `chmod o-w {path}`"


def files_open_to_all(files: Iterable[Path]) -> Iterator[Diagnostic]:
    """A warning for each file of the configuration, and each directory that holds one, which anybody may change."""
    files = tuple(files)
    for path in dict.fromkeys((*(file.parent for file in files), *files)):
        if (message := open_to_all(path)) is not None:
            yield Diagnostic(message=message, place=Place(SourceFile(path, ""), 1, 1), severity=Severity.WARNING)
