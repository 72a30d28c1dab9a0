"""Keeps standard output for a command's own words, while plugins are loaded and called that may print."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout


@contextmanager
def own_output() -> Iterator[None]:
    """Within it, what anybody prints or writes to descriptor 1 goes to standard error."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
