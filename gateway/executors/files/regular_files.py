"""Read regular files, and nothing that only looks like one. Blocking: callers run it in a thread.

Threats it answers:

- a FIFO, socket or device under an innocent name: opening or reading it could wait for ever, or act on the machine;
- a link, or a rename between check and use, that leads out of the directory that is served: what counts is where the
  *opened descriptor* lies, as the system tells it, not where a path led a moment before;
- a file that grows: no more than the cap is ever read.
"""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

if sys.platform == "darwin":
    import fcntl

_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Without O_NONBLOCK, opening a FIFO waits for its writer."""

_CHUNK: Final = 1 << 20


class NotServedError(OSError):
    """Nothing at this path may be read: not a regular file, or not under the directory that is served."""


class TooLargeError(OSError):
    """The file is larger than the cap."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a list says about a file."""

    size: int
    modified: float
    """Seconds since the epoch."""


def read_regular(path: str, *, max_size: int) -> bytes:
    """Read the whole file; links may lead to it.

    Raises:
        NotServedError: it is not a regular file.
        TooLargeError: it is larger than `max_size`.
        OSError: it is not there, or cannot be read.
    """
    with _opened(path) as descriptor:
        return _read(descriptor, max_size=max_size)


def read_beneath(root: str, relative: str, *, max_size: int) -> bytes:
    """Read the whole file `relative` of the directory `root`; links may lead to it, but not from outside `root`.

    Raises:
        NotServedError: it is not a regular file, or lies elsewhere.
        TooLargeError: it is larger than `max_size`.
        OSError: it is not there, or cannot be read.
    """
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with _opened(relative, directory=directory) as descriptor:
            if not lies_beneath(_place_of(directory), _place_of(descriptor)):
                raise NotServedError(relative)
            return _read(descriptor, max_size=max_size)
    finally:
        os.close(directory)


def facts_of(path: str) -> Facts | None:
    """Say what a list says about it; None if it is not a regular file, or gone."""
    try:
        found = os.stat(path)  # noqa: PTH116 - names that are not UTF-8 stay plain strings throughout
    except OSError:
        return None
    return Facts(found.st_size, found.st_mtime) if stat.S_ISREG(found.st_mode) else None


def lies_beneath(root: str, place: str) -> bool:
    """Whether `place` is under the directory `root`; both without links in them."""
    return place.startswith(root.rstrip(os.sep) + os.sep)


@contextmanager
def _opened(path: str, *, directory: int | None = None) -> Iterator[int]:
    if not stat.S_ISREG(os.stat(path, dir_fd=directory).st_mode):  # opening a device may already act on it
        raise NotServedError(path)
    descriptor = os.open(path, _FLAGS, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotServedError(path)
        yield descriptor
    finally:
        os.close(descriptor)


def _place_of(descriptor: int) -> str:
    """Where what is open really lies."""
    if sys.platform == "darwin":
        return os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - a link of the system, not a path of ours


def _read(descriptor: int, *, max_size: int) -> bytes:
    if os.fstat(descriptor).st_size > max_size:
        raise TooLargeError
    chunks: list[bytes] = []
    left = max_size + 1
    while left > 0 and (chunk := os.read(descriptor, min(left, _CHUNK))):
        chunks.append(chunk)
        left -= len(chunk)
    if left == 0:
        raise TooLargeError
    return b"".join(chunks)
