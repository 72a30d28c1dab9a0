"""Remembers for a moment where programs were found on a PATH.

Why: a start tries each directory of PATH with an execve(2) of its own until one has the program, in every call. Shells
remember the place, too, and for as long as they live (POSIX.1-2017, XCU 2.9.1.1).
"""

import os
import stat
import time
from pathlib import Path
from typing import Final

_SECONDS: Final = 1.0
"""How long a program that is installed in an earlier directory may go unnoticed."""
_MAX_REMEMBERED: Final = 256
"""The environment may come from callers, and its PATH with it."""


class ProgramPaths:
    """The files that names of programs led to."""

    def __init__(self) -> None:
        self._found: Final[dict[tuple[str, str], tuple[str, float]]] = {}

    def find(self, program: str, path: str) -> str | None:
        """Return the file of a program; None where only the start itself can tell."""
        now = time.monotonic()
        known = self._found.get((program, path))
        if known is not None and now < known[1]:
            return known[0]
        found = _first(program, path)
        if len(self._found) >= _MAX_REMEMBERED:
            self._found.clear()
        if found is not None:
            self._found[program, path] = found, now + _SECONDS
        return found

    def forget(self, program: str, path: str) -> None:
        """Look for a program anew the next time."""
        self._found.pop((program, path), None)


def _first(program: str, path: str) -> str | None:
    """Return the first that there is, as execvp(3) would find it.

    None where the working directory or the rights of the child decide: a relative directory, a file that may not run.
    """
    if "/" in program or "\0" in program or "\0" in path:
        return None
    for directory in path.split(os.pathsep):
        if not directory.startswith("/"):
            return None
        file = f"{directory}/{program}"
        try:
            mode = Path(file).stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError):
            return None
        return file if stat.S_ISREG(mode) and os.access(file, os.X_OK) else None
    return None
