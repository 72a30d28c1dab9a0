"""Replaces files atomically."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path, *, mode: int) -> Iterator[BinaryIO]:
    """Yield a new file that replaces `path` if the body succeeds.

    Raise OSError if the file cannot be written, or `path` is not a regular file.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "Is not a regular file", str(path))
    # Create the new file in the same directory, because rename(2) only works within a file system.
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.absolute().parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            # mkstemp uses 0600. fchmod(2) ignores the umask.
            os.fchmod(descriptor, mode)
            yield file
            file.flush()
            os.fsync(descriptor)  # a crash could otherwise leave an empty file
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
