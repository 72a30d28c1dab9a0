"""Reads regular files, and nothing that only looks like one. Blocking: callers run it in a thread.

Threats it answers:

- a FIFO, socket or device under an innocent name: opening or reading it could wait for ever, or act on the machine.
  What a path leads to is held first (O_PATH), which does neither, and opened through that hold once it is known;
- a link, or a rename between check and use, that leads out of the directory that is served, or to a hidden file in it:
  what counts is where that which is *held* lies, as the system tells it, not where a path led a moment before;
- a directory that is served, or one above it, that is swapped for a link: what counts is where it lay when the
  configuration was read (`place`);
- a file that grows: no more than the cap is ever read.
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

# O_NOCTTY: a terminal that is opened must not become the daemon's controlling one (open(2)).
_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Without O_NONBLOCK, opening a FIFO waits for its writer."""

_HIDDEN: Final = re.compile(r"/\.(?!\.)")
_CHUNK: Final = 1 << 20


class NotServedError(OSError):
    """Nothing at this path may be read: not a regular file, or not under the directory that is served."""


class TooLargeError(OSError):
    """The file is larger than the cap."""


class FileFacts(msgspec.Struct, frozen=True):
    """Describes a file in a listing."""

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
    with _held(path) as held:
        return _read(held, max_size=max_size)


@contextmanager
def opened_regular(path: str) -> Iterator[int]:
    """Open a file to read from it; links may lead to it.

    Raises:
        NotServedError: it is not a regular file.
        OSError: it is not there, or cannot be read.
    """
    with _held(path) as held:
        descriptor = _reopened(held)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def read_beneath(root: str, relative: str, *, place: str, max_size: int) -> bytes:
    """Read the whole file `relative` of the directory `root`; links may lead to it, but not from outside `root`.

    Raises:
        NotServedError: it is not a regular file, or lies elsewhere, or is hidden; or `root` does not lie at `place`.
        TooLargeError: it is larger than `max_size`.
        OSError: it is not there, or cannot be read.
    """
    with opened_directory(root) as directory, _held(relative, directory=directory) as held:
        if place_of(directory) != place or not is_shown(place_of(held), root=place):
            raise NotServedError(relative)
        return _read(held, max_size=max_size)


def facts_of(path: str) -> FileFacts | None:
    """Say what a list says about it; None if it is not a regular file, or gone."""
    try:
        found = os.stat(path)  # noqa: PTH116 - names that are not UTF-8 stay plain strings throughout
    except OSError:
        return None
    return facts_in(found)


def facts_beneath(root: str, name: str, *, directory: int) -> FileFacts | None:
    """Say what a list says about `name` of an open directory; None if it is gone, or may not be read under `root`."""
    try:
        with _held(name, directory=directory) as held:
            return facts_in(os.fstat(held)) if is_shown(place_of(held), root=root) else None
    except OSError:
        return None


def facts_in(found: os.stat_result) -> FileFacts | None:
    return FileFacts(found.st_size, found.st_mtime) if stat.S_ISREG(found.st_mode) else None


def is_shown(place: str, *, root: str) -> bool:
    """Whether `place` lies under the directory `root`, and is not hidden there; both without links in them.

    Names that begin with two dots are Kubernetes' own, in whose ConfigMaps every file is a link to `..data/`.
    """
    below = root.rstrip(os.sep) + os.sep
    return place.startswith(below) and not _HIDDEN.search(place, len(below) - 1)


@contextmanager
def opened_directory(path: str) -> Iterator[int]:
    # O_DIRECTORY refuses a FIFO that has taken its place; to open that would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _held(path: str, *, directory: int | None = None) -> Iterator[int]:
    """Hold what a path leads to, whatever it is and becomes."""
    if sys.platform == "linux":
        held = os.open(path, os.O_PATH | os.O_CLOEXEC, dir_fd=directory)
    else:
        if not stat.S_ISREG(os.stat(path, dir_fd=directory).st_mode):  # opening a device may already act on it
            raise NotServedError(path)
        held = os.open(path, _FLAGS, dir_fd=directory)
    try:
        yield held
    finally:
        os.close(held)


def real_place(directory: str) -> str:
    """Return the path of a directory with its links resolved; of one that cannot be opened, as it is written."""
    try:
        with opened_directory(directory) as descriptor:
            return place_of(descriptor)
    except OSError:
        return os.path.realpath(directory)


def place_of(descriptor: int) -> str:
    """Return the real path of an open descriptor."""
    if sys.platform == "darwin":
        # F_GETPATH fills MAXPATHLEN bytes at the most, which is 1024 there.
        return os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - a link of the system, not a path of ours


def _read(held: int, *, max_size: int) -> bytes:
    found = os.fstat(held)
    # Said before anything is read; one that grows meanwhile is caught by `_read_all`.
    if stat.S_ISREG(found.st_mode) and found.st_size > max_size:
        raise TooLargeError
    descriptor = _reopened(held)
    try:
        return _read_all(descriptor, max_size=max_size)
    finally:
        os.close(descriptor)


def _reopened(held: int) -> int:
    """Open what is held, if it is a regular file."""
    if not stat.S_ISREG(os.fstat(held).st_mode):
        raise NotServedError
    # Through the hold and not by the path, which may lead elsewhere by now. O_PATH alone cannot be read (open(2)).
    return os.open(f"/proc/self/fd/{held}", _FLAGS) if sys.platform == "linux" else os.dup(held)


def _read_all(descriptor: int, *, max_size: int) -> bytes:
    chunks: list[bytes] = []
    # A byte more than allowed tells that there is more.
    left = max_size + 1
    while left > 0 and (chunk := os.read(descriptor, min(left, _CHUNK))):
        chunks.append(chunk)
        left -= len(chunk)
    if left == 0:
        raise TooLargeError
    return b"".join(chunks)
