"""Facts about files and processors of this machine.

pathlib raises if a directory is not accessible, a name is too long, or a path contains NUL. The functions below treat
such a path as missing.
"""

import hashlib
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gateway.platform_facilities import processors_of_affinity

_PROC: Final = Path("/proc/self/cgroup")
_MOUNT: Final = Path("/sys/fs/cgroup")


def usable_processors(*, groups: Path = _PROC, mount: Path = _MOUNT) -> int:
    """Return the number of processors that the CPU affinity and the cgroup (version 2) quotas allow, rounded up."""
    return max(1, min([processors_of_affinity(), *map(math.ceil, _quotas(groups, mount))]))


def _quotas(groups: Path, mount: Path) -> Iterator[float]:
    for line in _read(groups).splitlines():
        if not line.startswith("0::"):  # cgroups(7): a hierarchy of version 1
            continue
        # The quota of a group also applies to its descendants. In a container, the path can be the one on the host.
        group = Path(line.removeprefix("0::/"))
        for folder in (group, *group.parents):
            quota, _, period = _read(mount / folder / "cpu.max").partition(" ")
            if quota.isdigit() and period.strip().isdigit() and int(quota) and int(period):  # not `max`
                yield int(quota) / int(period)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""


def is_file(path: str | Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113 - see the top


def is_directory(path: str | Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - see the top


def exists(path: str | Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - see the top


def content_digest(path: Path) -> str:
    """Return the SHA-256 of a small file, or "" for an unreadable file."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def world_writable_warning(path: Path) -> str | None:
    """Return a warning if every user can write to a file, or to a directory without the sticky bit.

    Threat: other users could change a configuration file or plugin, and thereby run commands as the daemon.
    """
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - see the top
    except (OSError, ValueError):
        return None
    # inode(7): in a sticky directory, users cannot remove or rename the files of others.
    is_shared = stat.S_ISDIR(mode) and bool(mode & stat.S_ISVTX)
    if not mode & stat.S_IWOTH or is_shared or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return None
    what = "directory" if stat.S_ISDIR(mode) else "file"
    return f"every user of this machine can change this {what}. Run `chmod o-w {path}`"


def is_unreadable(path: Path) -> bool:
    """Whether permissions prevent access to a path."""
    try:
        path.stat()
    except (OSError, ValueError) as error:
        return isinstance(error, PermissionError)
    return False
