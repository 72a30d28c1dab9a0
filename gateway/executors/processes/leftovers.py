"""Ends what the calls of a daemon that was killed have left running. Done once, when the next daemon starts.

A killed daemon can end nothing. PR_SET_PDEATHSIG (prctl(2)) would, but it can only be set between fork and exec, by a
program in front: `setpriv --pdeathsig KILL` takes the spawn of `true` from 620 to 1,360 µs, and reaches the child alone
and none of what that starts. A sandbox ends with the daemon as it is (bubblewrap's --die-with-parent).

Ended is only what carries the marker of a call, is the daemon's user's, and whose daemon has ended for certain: the
marker names its process by PID namespace, process id and start time. Each is held by a pidfd while it is judged.
"""

import os
import re
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from gateway.executors.processes.process_table import MARKER, all_pids, is_gone, marker_of

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
