"""Kills processes that a killed daemon left running.

Processes of calls are killed when the next daemon starts. Long-lived children are killed by the `DeathGuard`.

PR_SET_PDEATHSIG (prctl(2)) would need a program between fork and exec and does not reach grandchildren.
"""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from gateway.processes.process_table import MARKER, Descendants, all_pids, is_gone, marker_of

_OF_A_CALL: Final = re.compile(r"(?P<daemon>\d+\.\d+\.\d+)\.[0-9a-f]{16}-\d+", re.ASCII)


def end_leftovers() -> int:
    """Kill the processes of killed daemons and return their number."""
    own = os.environ.get(MARKER)  # set if a call has started this daemon
    return sum(_end(pid) for pid in all_pids() if _is_left_over(pid, own=own))


def _end(pid: int) -> bool:
    with suppress(OSError):
        descriptor = os.pidfd_open(pid)
        try:
            # Check again: the open descriptor prevents reuse of the process id.
            if _is_left_over(pid, own=os.environ.get(MARKER)):
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


# Repeat because a killed process could have forked. The limit covers processes that cannot be killed.
_PROGRAM: Final = """\
import os, sys, time
wanted = b"\\0" + os.fsencode(sys.argv[1])
sys.stdin.buffer.read()
for _ in range(100):
    found = False
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if name.isdigit() and wanted in b"\\0" + file.read():
                    os.kill(int(name), 9)
                    found = True
        except OSError:
            pass
    if not found:
        break
    time.sleep(0.02)
"""
"""The program of the death guard. Its argument is the marker prefix, `NAME=value`."""


class DeathGuard:
    """Kills the daemon's long-lived children if the daemon is killed.

    The guard is a separate process. Its standard input ends when the daemon does.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, descendants: Descendants) -> None:
        """Start the guard unless it is running."""
        if self._process is not None:
            return
        # -I and -S ignore the working directory, PYTHON* variables and site-packages.
        command = [sys.executable, "-I", "-S", "-c", _PROGRAM, f"{MARKER}={descendants.prefix}"]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={MARKER: descendants.identity},
                # Signals to the daemon's process group must not end the guard.
                start_new_session=True,
            )
        except OSError:  # process limit reached: the next daemon ends the children
            self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process = None
