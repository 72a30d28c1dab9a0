"""Reads regular files only. All functions block.

Threats:
- A FIFO, socket or device that blocks or acts on the machine when opened. A path is opened with O_PATH, which has no
  effect, checked, and then reopened.
- A link or rename that leads outside the served directory or to a hidden file. The real path of the open descriptor is
  checked.
- A served directory or its parent that is replaced by a link. Its real path is compared with that at load (`place`).
- A file that grows. At most `max_size` bytes are read.
"""

import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

if sys.platform == "darwin":
    import fcntl

# O_NONBLOCK: opening a FIFO must not wait for a writer.
# O_NOCTTY: a terminal must not become the controlling terminal (open(2)).
_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_HIDDEN: Final = re.compile(r"/\.(?!\.)")
_CHUNK: Final = 1 << 20


class NotServedError(OSError):
    """The path is not a regular file, or not below the served directory."""


class TooLargeError(OSError):
    pass


class FileFacts(msgspec.Struct, frozen=True):
    size: int
    modified: float
    """Seconds since the epoch."""


def read_regular(path: str, *, max_size: int) -> bytes:
    """Read a file. Follows links.

    Raises:
        NotServedError: the path is not a regular file.
        TooLargeError: the file is larger than `max_size`.
        OSError: the file does not exist or cannot be read.
    """
    with _opened_path(path) as held:
        return _read(held, max_size=max_size)


@contextmanager
def opened_regular(path: str) -> Iterator[int]:
    """Open a file for reading. Follows links. Raises like `read_regular`."""
    with _opened_path(path) as held:
        descriptor = _reopened(held)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def read_beneath(root: str, relative: str, *, place: str, max_size: int) -> bytes:
    """Read the file `relative` below the directory `root`. Follows links inside `root`.

    Raises:
        NotServedError: the path is not a regular file, is outside or hidden, or `root` is no longer at `place`.
        TooLargeError: the file is larger than `max_size`.
        OSError: the file does not exist or cannot be read.
    """
    with opened_directory(root) as directory, _opened_path(relative, directory=directory) as held:
        if place_of(directory) != place or not is_shown(place_of(held), root=place):
            raise NotServedError(relative)
        return _read(held, max_size=max_size)


def facts_of(path: str) -> FileFacts | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - also takes names that are not UTF-8
    except OSError:
        return None
    return facts_in(found)


def facts_beneath(root: str, name: str, *, directory: int) -> FileFacts | None:
    """Return the facts of a file in an open directory, or None if it does not exist or is not served under `root`."""
    try:
        with _opened_path(name, directory=directory) as held:
            return facts_in(os.fstat(held)) if is_shown(place_of(held), root=root) else None
    except OSError:
        return None


def facts_in(found: os.stat_result) -> FileFacts | None:
    return FileFacts(found.st_size, found.st_mtime) if stat.S_ISREG(found.st_mode) else None


def is_shown(place: str, *, root: str) -> bool:
    """Return whether the real path `place` is below the real path `root` and not hidden.

    Names with two leading dots are allowed: files of a Kubernetes ConfigMap are links to `..data/`.
    """
    below = root.rstrip(os.sep) + os.sep
    return place.startswith(below) and not _HIDDEN.search(place, len(below) - 1)


@contextmanager
def opened_directory(path: str) -> Iterator[int]:
    # O_DIRECTORY rejects a FIFO, which would block.
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _opened_path(path: str, *, directory: int | None = None) -> Iterator[int]:
    """Open a path without side effects."""
    if sys.platform == "linux":
        held = os.open(path, os.O_PATH | os.O_CLOEXEC, dir_fd=directory)
    else:
        if not stat.S_ISREG(os.stat(path, dir_fd=directory).st_mode):  # opening a device can have side effects
            raise NotServedError(path)
        held = os.open(path, _FLAGS, dir_fd=directory)
    try:
        yield held
    finally:
        os.close(held)


def real_place(directory: str) -> str:
    """Return the path of a directory without links, as far as it can be opened."""
    try:
        with opened_directory(directory) as descriptor:
            return place_of(descriptor)
    except OSError:
        return os.path.realpath(directory)


def place_of(descriptor: int) -> str:
    if sys.platform == "darwin":
        # F_GETPATH writes at most MAXPATHLEN bytes, which is 1024.
        return os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - not a path of ours


def _read(held: int, *, max_size: int) -> bytes:
    found = os.fstat(held)
    # `_read_all` also checks, because a file can grow.
    if stat.S_ISREG(found.st_mode) and found.st_size > max_size:
        raise TooLargeError
    descriptor = _reopened(held)
    try:
        return _read_all(descriptor, max_size=max_size)
    finally:
        os.close(descriptor)


def _reopened(held: int) -> int:
    """Reopen a held descriptor for reading if it is a regular file."""
    if not stat.S_ISREG(os.fstat(held).st_mode):
        raise NotServedError
    # Not by path, which can now lead elsewhere. An O_PATH descriptor cannot be read (open(2)).
    return os.open(f"/proc/self/fd/{held}", _FLAGS) if sys.platform == "linux" else os.dup(held)


def _read_all(descriptor: int, *, max_size: int) -> bytes:
    chunks: list[bytes] = []
    # One more byte shows whether the file is too large.
    left = max_size + 1
    while left > 0 and (chunk := os.read(descriptor, min(left, _CHUNK))):
        chunks.append(chunk)
        left -= len(chunk)
    if left == 0:
        raise TooLargeError
    return b"".join(chunks)
