"""Writes a file whole or not at all."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path, *, mode: int) -> Iterator[BinaryIO]:
    """A new file, which takes the place of the one at `path` unless the body fails.

    Raises:
        OSError: it cannot be written, or is something else than a file: rename(2) would replace a device.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "Is not a regular file", str(path))
    # In the same directory, for rename(2) is atomic within a file system only: somebody may be reading the old one.
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.absolute().parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            # mkstemp gives 0600; fchmod(2) heeds no umask.
            os.fchmod(descriptor, mode)
            yield file
            file.flush()
            os.fsync(descriptor)  # else a crash could leave the new name and no content
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
