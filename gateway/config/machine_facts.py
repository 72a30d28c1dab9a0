"""Answers questions about files and programs of this machine. None of these functions raises.

pathlib's methods raise where the daemon may not enter a directory, a name is too long or a path contains a NUL. Nothing
usable exists at such a path, and the caller reports that where the path is written.
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
    """The path with its links resolved, as far as it exists."""
    return os.path.realpath(path)


def program_path(name: str) -> str | None:
    """The program of this name on the daemon's PATH."""
    return shutil.which(name)


def content_digest(path: Path) -> str:
    """SHA-256 of a small file; empty if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def open_to_all(path: Path) -> str | None:
    """Say that every user may write to a file, or to a directory (one with the sticky bit is nobody's else).

    Threat: who may write to the file, to a plugin, or to the directory in which it lies, runs commands as the daemon.
    """
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - pathlib's raises where a name has a NUL
    except (OSError, ValueError):
        return None
    # inode(7): where this bit is set, as on /tmp, others cannot remove or rename what is not theirs.
    is_shared = stat.S_ISDIR(mode) and bool(mode & stat.S_ISVTX)
    if not mode & stat.S_IWOTH or is_shared or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return None
    what = "directory" if stat.S_ISDIR(mode) else "file"
    return f"every user of this machine can change this {what}: `chmod o-w {path}`"


def is_unreadable(path: Path) -> bool:
    """Whether permissions hide what lies there: another user, such as the daemon's, may see more."""
    try:
        path.stat()
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return False
