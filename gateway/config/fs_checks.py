"""Checks for files and directories at paths of the configuration; they never raise.

pathlib's raise where a directory is closed to the daemon, a name is too long or a path holds a NUL. Nothing usable lies
at such a path, and the caller reports that at its place in the file.
"""

import hashlib
import os
import shutil
from pathlib import Path

from gateway.config.machine_facts import machine_fact


@machine_fact
def is_file(path: str | Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113 - see above


@machine_fact
def is_directory(path: str | Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - see above


@machine_fact
def exists(path: str | Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - see above


@machine_fact
def is_link(path: str) -> bool:
    return os.path.islink(path)  # noqa: PTH114 - see above


@machine_fact
def real_path(path: str | Path) -> str:
    """The path with its links resolved, as far as it exists."""
    return os.path.realpath(path)


@machine_fact
def program_path(name: str) -> str | None:
    """The program of this name on the daemon's PATH."""
    return shutil.which(name)


@machine_fact
def content_digest(path: Path) -> str:
    """SHA-256 of a small file; empty if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def is_unreadable(path: Path) -> bool:
    """Whether permissions hide what lies there: another user, such as the daemon's, may see more."""
    try:
        path.stat()
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return False
