"""The directory where workers have their sockets for each other, which nobody else may enter.

It is locked (flock(2)) while its supervisor lives: what a killed one has left, the next supervisor removes.
"""

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import structlog

from gateway.executors.shell.scratch import remove_leftovers

log: Final = structlog.get_logger()

_PREFIX: Final = "mcp-gateway-workers-"
_UNLOCKED: Final = "mcp-gateway-new-"
_LOCKED: Final = re.compile(rf"{_PREFIX}\w{{8}}")


@contextmanager
def private_directory() -> Iterator[Path]:
    """Make the directory, of mode 0700, for as long as the context lasts."""
    if left := remove_leftovers(_LOCKED):
        log.info("removed what a killed supervisor had left", directories=left)
    path = Path(tempfile.mkdtemp(prefix=_UNLOCKED))
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # a file system without locks: nobody removes it after a crash
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # It gets its name once it is locked: until then nobody takes it for left.
            path = path.rename(path.with_name(path.name.replace(_UNLOCKED, _PREFIX)))
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)
