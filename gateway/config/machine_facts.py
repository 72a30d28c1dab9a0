"""Facts about files, programs and processors of this machine. Never raises.

pathlib raises if a directory is not accessible, a name is too long, or a path contains NUL. Here such a path does not
exist.
"""

import hashlib
import math
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gateway.platform_facilities import processors_of_affinity

_PROC: Final = Path("/proc/self/cgroup")
_MOUNT: Final = Path("/sys/fs/cgroup")


def usable_processors(*, groups: Path = _PROC, mount: Path = _MOUNT) -> int:
    """Return the number of processors that the affinity and the quotas of cgroups version 2 allow, rounded up."""
    return max(1, min([processors_of_affinity(), *map(math.ceil, _quotas(groups, mount))]))


def _quotas(groups: Path, mount: Path) -> Iterator[float]:
    for line in _read(groups).splitlines():
        if not line.startswith("0::"):  # cgroups(7): a hierarchy of version 1
            continue
        # The quota of a group also applies to its descendants. In a container, the path can be that of the host.
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


def is_link(path: str) -> bool:
    return os.path.islink(path)  # noqa: PTH114 - see the top


def real_path(path: str | Path) -> str:
    """Resolve symbolic links as far as the path exists."""
    return os.path.realpath(path)


def program_path(name: str) -> str | None:
    return shutil.which(name)


def content_digest(path: Path) -> str:
    """Return the SHA-256 of a small file, or "" for an unreadable file."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def open_to_all(path: Path) -> str | None:
    """Return a warning if every user can write to a file or directory. The sticky bit makes directories safe.

    Threat: users who can change a configuration file or plugin can run commands as the daemon.
    """
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - pathlib's raises where a name has a NUL
    except (OSError, ValueError):
        return None
    # inode(7): in a sticky directory, users cannot remove or rename the files of others.
    is_shared = stat.S_ISDIR(mode) and bool(mode & stat.S_ISVTX)
    if not mode & stat.S_IWOTH or is_shared or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return None
    what = "directory" if stat.S_ISDIR(mode) else "file"
    return f"every user of this machine can change this {what}: `chmod o-w {path}`"


def is_unreadable(path: Path) -> bool:
    """Whether permissions prevent reading."""
    try:
        path.stat()
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return False
