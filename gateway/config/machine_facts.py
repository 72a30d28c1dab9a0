"""Facts about the files and programs of this machine. None of these functions raises.

pathlib raises if a directory cannot be entered, a name is too long, or a path contains NUL. Here, such a path does not
exist, and the caller reports it where it is written.
"""

import hashlib
import os
import shutil
import stat
from pathlib import Path


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
    """Look up a program on the daemon's PATH."""
    return shutil.which(name)


def content_digest(path: Path) -> str:
    """Return the SHA-256 of a small file, or "" if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def open_to_all(path: Path) -> str | None:
    """Return a warning if every user can write to a file or directory. Directories with the sticky bit are safe.

    Threat: anyone who can change a configuration file, a plugin or its directory can run commands as the daemon.
    """
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - pathlib's raises where a name has a NUL
    except (OSError, ValueError):
        return None
    # inode(7): with this bit, as on /tmp, users cannot remove or rename files of others.
    is_shared = stat.S_ISDIR(mode) and bool(mode & stat.S_ISVTX)
    if not mode & stat.S_IWOTH or is_shared or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return None
    what = "directory" if stat.S_ISDIR(mode) else "file"
    return f"every user of this machine can change this {what}: `chmod o-w {path}`"


def is_unreadable(path: Path) -> bool:
    """Whether permissions hide the file. The daemon's own user may be able to read it."""
    try:
        path.stat()
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return False
