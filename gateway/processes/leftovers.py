"""Ends what a daemon that was killed has left running: when the next one starts, or by a process that outlives it.

A killed daemon can end nothing. PR_SET_PDEATHSIG (prctl(2)) would, but it can only be set between fork and exec, by a
program in front: `setpriv --pdeathsig KILL` takes the spawn of `true` from 620 to 1,360 µs, and reaches the child alone
and none of what that starts. A sandbox ends with the daemon as it is (bubblewrap's --die-with-parent).

Ended is only what carries the marker of a call, is the daemon's user's, and whose daemon has ended for certain: the
marker names its process by PID namespace, process id and start time. Each is held by a pidfd while it is judged.

What calls start ends soon by itself. Children that last as long as the daemon, other MCP servers, do not wait for the
next one: see `DeathGuard`.
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
    """Kill them, and return how many there were."""
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return 0
    own = os.environ.get(MARKER)  # of a daemon that was itself started by a call
    return sum(_end(pid) for pid in all_pids() if _is_left_over(pid, own=own))


def _end(pid: int) -> bool:
    with suppress(OSError):
        descriptor = os.pidfd_open(pid)
        try:
            # Judged again now that the descriptor holds it: the id may have passed to another process since.
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


# It looks again until it finds none, for what it kills may have forked after the listing; 100 times at the most, for
# one that it may not kill stays.
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
"""Run by the death guard, given the beginning of the environment variable of what it ends."""


class DeathGuard:
    """A process, once it is needed, that outlives a killed daemon for a moment, and ends what that has left running.

    Nothing in a process can run after SIGKILL; so this one waits for the end of its standard input, which the kernel
    closes with the daemon, and kills what carries the daemon's marker, at any depth. `stop` it before the daemon ends
    by itself.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, prefix: str) -> None:
        """Start it, unless it runs, or there is no /proc to find anything in.

        `prefix` is the common beginning of the markers of this daemon's children.
        """
        if sys.platform != "linux" or self._process is not None:
            return
        # -I and -S: nothing of the working directory, of PYTHON* or of site-packages runs in it.
        command = [sys.executable, "-I", "-S", "-c", _PROGRAM, f"{MARKER}={prefix}"]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                # A signal to the daemon's group (Ctrl-C, or `kill -9` of it) must not end the guard with it.
                start_new_session=True,
            )
        except OSError:  # no process left: the next daemon will look after what is left
            self._process = None

    def stop(self) -> None:
        """End it: nothing is left to be ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process = None
