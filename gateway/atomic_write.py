"""Replaces files atomically."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

_PRIVATE: Final = 0o600
"""The permissions that mkstemp sets."""


@contextmanager
def atomic_write(path: Path, *, mode: int) -> Iterator[BinaryIO]:
    """Yield a new file that replaces `path` if the body succeeds.

    Raise OSError if the file cannot be written, or `path` is not a regular file.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "Is not a regular file", str(path))
    # Create the new file in the same directory, because rename(2) only works within a file system.
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.absolute().parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if mode != _PRIVATE:  # some file systems have no permissions, and refuse to change them
                os.fchmod(descriptor, mode)  # ignores the umask
            yield file
            file.flush()
            os.fsync(descriptor)  # a crash could otherwise leave an empty file
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
