"""Reads regular files only. All functions block.

Threats:
- Opening a FIFO, socket or device can block or have side effects. The type is checked before opening.
- A link or a rename can lead outside the served directory or to a hidden file. The real path is checked, then opened
  one component at a time without following links.
- A link can replace the served directory or its parent. Files are opened below the directory's real path at load.
- A file can grow while it is read. At most `max_size` bytes are read.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

# O_NONBLOCK: opening a FIFO must not wait for a writer.
# O_NOCTTY: a terminal must not become the controlling terminal (open(2)).
_FILE: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_PATH (Linux) requires no permission to list the directory.
_PARENT: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_HIDDEN: Final = re.compile(r"/\.(?!\.)")
_CHUNK: Final = 1 << 20


class NotServedError(OSError):
    """The path is not a regular file, is outside the served directory, or is hidden."""


class TooLargeError(OSError):
    pass


class FileFacts(msgspec.Struct, frozen=True):
    size: int
    modified: float
    """Seconds since the epoch."""


def read_regular(path: str, *, max_size: int) -> bytes:
    """Read a regular file, or the regular file that a link leads to.

    Raises:
        NotServedError: the path is not a regular file.
        TooLargeError: the file is larger than `max_size`.
        OSError: the file does not exist or cannot be read.
    """
    with _opened_file(path) as descriptor:
        return _read_all(descriptor, max_size=max_size)


def read_beneath(root: str, relative: str, *, max_size: int) -> bytes:
    """Read the file at `relative` below the real path `root`. Links are followed only to targets below `root`.

    Raises:
        NotServedError: the path is not a regular file, is outside `root`, or is hidden.
        TooLargeError: the file is larger than `max_size`.
        OSError: the file does not exist or cannot be read.
    """
    with _parent_of(_shown(root, relative)) as (parent, name), _opened_file(name, directory=parent) as descriptor:
        return _read_all(descriptor, max_size=max_size)


def facts_of(path: str) -> FileFacts | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - also takes names that are not UTF-8
    except OSError:
        return None
    return facts_in(found)


def facts_beneath(root: str, relative: str) -> FileFacts | None:
    """Return the size and modification time of a file, or None if `read_beneath` would not read the file."""
    try:
        with _parent_of(_shown(root, relative)) as (parent, name):
            return facts_in(os.stat(name, dir_fd=parent, follow_symlinks=False))
    except OSError:
        return None


def facts_in(found: os.stat_result) -> FileFacts | None:
    return FileFacts(found.st_size, found.st_mtime) if stat.S_ISREG(found.st_mode) else None


@contextmanager
def directory_beneath(root: str, relative: str) -> Iterator[int]:
    """Open a directory at or below the real path `root`.

    Raises:
        NotServedError: the directory is outside `root` or hidden.
        OSError: the directory does not exist or cannot be listed.
    """
    with _parent_of(_shown(root, relative)) as (parent, name):
        descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _shown(root: str, relative: str) -> str:
    """Return the real path of a file. Raise NotServedError if the path is outside `root` or hidden.

    Names with two leading dots are allowed, because files of a Kubernetes ConfigMap are links to `..data/`.
    """
    try:
        found = os.path.realpath(os.path.join(root, relative))  # noqa: PTH118 - keeps names that are not UTF-8
    except OSError as error:  # readlink(2), EINVAL: a link was replaced while it was followed
        raise NotServedError(relative) from error
    below = root.rstrip("/") + "/"
    if found != root and (not found.startswith(below) or _HIDDEN.search(found, len(below) - 1)):
        raise NotServedError(relative)
    return found


@contextmanager
def _parent_of(path: str) -> Iterator[tuple[int, str]]:
    """Open the parent of a real path without following links. Yield the descriptor and the last name of the path.

    Raises:
        OSError: a parent does not exist, or has been replaced by a link.
    """
    *parents, name = path.strip("/").split("/")
    directory = os.open("/", _PARENT)
    try:
        for each in parents:
            below = os.open(each, _PARENT, dir_fd=directory)
            os.close(directory)
            directory = below
        yield directory, name or "."
    finally:
        os.close(directory)


@contextmanager
def _opened_file(path: str, *, directory: int | None = None) -> Iterator[int]:
    """Open a file for reading. Follow links unless `directory` is given."""
    is_link_allowed = directory is None
    # Check the type before opening, because opening a device can have side effects.
    _require_regular(os.stat(path, dir_fd=directory, follow_symlinks=is_link_allowed))
    descriptor = os.open(path, _FILE | (0 if is_link_allowed else os.O_NOFOLLOW), dir_fd=directory)
    try:
        _require_regular(os.fstat(descriptor))
        yield descriptor
    finally:
        os.close(descriptor)


def _require_regular(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise NotServedError


def _read_all(descriptor: int, *, max_size: int) -> bytes:
    # The loop below checks the size again, because files in /proc have size 0 and a file can grow.
    if os.fstat(descriptor).st_size > max_size:
        raise TooLargeError
    chunks: list[bytes] = []
    # Reading one byte more than `max_size` shows whether the file is too large.
    left = max_size + 1
    while left > 0 and (chunk := os.read(descriptor, min(left, _CHUNK))):
        chunks.append(chunk)
        left -= len(chunk)
    if left == 0:
        raise TooLargeError
    return b"".join(chunks)
