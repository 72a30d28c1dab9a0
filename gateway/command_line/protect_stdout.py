"""Keeps standard output for a command's result while plugins, which may print, are loaded and called."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout


@contextmanager
def protect_stdout() -> Iterator[None]:
    """Redirect writes to `sys.stdout` and descriptor 1 to standard error, for as long as the context lasts."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
