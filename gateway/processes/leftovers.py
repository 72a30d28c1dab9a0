"""Kills processes that a killed daemon left running.

The next daemon kills the processes of calls when it starts. `DeathGuard` kills long-lived children at once.

PR_SET_PDEATHSIG (prctl(2)) is not used, because a child must set it before exec, and grandchildren do not inherit it.
"""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from gateway.processes.process_table import MARKER, all_pids, is_gone, marker_of

_OF_A_CALL: Final = re.compile(r"(?P<daemon>\d+\.\d+\.\d+)\.[0-9a-f]{16}-\d+", re.ASCII)


def end_leftovers() -> int:
    """Kill processes that killed daemons left running. Return the number of killed processes."""
    own = os.environ.get(MARKER)  # set if a call of another daemon has started this daemon
    return sum(_end(pid, own=own) for pid in all_pids())


def _end(pid: int, *, own: str | None) -> bool:
    with suppress(OSError):
        # Open the descriptor before the check, so that a later process with the same id is never killed.
        descriptor = os.pidfd_open(pid)
        try:
            if _is_left_over(pid, own=own):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                return True
        finally:
            os.close(descriptor)
    return False


def _is_left_over(pid: int, *, own: str | None) -> bool:
    marker = marker_of(pid)
    if marker is None or marker == own:
        return False
    with suppress(OSError):
        if Path(f"/proc/{pid}").stat().st_uid != os.geteuid():
            return False
    found = _OF_A_CALL.fullmatch(marker)
    return found is not None and is_gone(found["daemon"])


_PROGRAM: Final = """\
import os, sys
groups = set()
for line in sys.stdin:
    number = int(line)
    groups.add(number) if number > 0 else groups.discard(-number)
for group in groups:
    try:
        os.killpg(group, 9)
    except OSError:
        pass
"""
"""The program of the death guard. The input line `123` adds process group 123, and `-123` removes that group."""


class DeathGuard:
    """Kills the process groups of the daemon's long-lived children if the daemon is killed.

    The guard is a separate process whose standard input ends when the daemon ends.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, group: int) -> None:
        """Add a process group. Start the guard process if it is not running."""
        with suppress(OSError):  # process limit reached, or the guard was killed
            if self._process is None:
                self._process = subprocess.Popen(
                    # -I and -S ignore the working directory, PYTHON* variables and site-packages.
                    [sys.executable, "-I", "-S", "-c", _PROGRAM],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={MARKER: os.environ[MARKER]},  # the marker of this daemon
                    bufsize=0,
                    # Signals to the daemon's process group must not end the guard.
                    start_new_session=True,
                )
            self._tell(group)

    def remove(self, group: int) -> None:
        with suppress(OSError):
            self._tell(-group)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process = None

    def _tell(self, number: int) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(b"%d\n" % number)
