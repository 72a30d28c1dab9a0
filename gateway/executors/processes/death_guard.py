"""A process that outlives a killed daemon for a moment, and ends what that has left running.

For children that last as long as the daemon: other MCP servers. What calls start ends soon by itself, and the next
daemon looks after it (`leftovers`). Nothing in a process can run after SIGKILL; so this one waits for the end of its
standard input, which the kernel closes with the daemon, and kills what carries the daemon's marker, at any depth.
"""

import subprocess
import sys
from typing import Final

from gateway.executors.processes.process_table import MARKER

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


class DeathGuard:
    """The process, once it is needed; `stop` before the daemon ends by itself."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, prefix: str) -> None:
        """Start it, unless it runs, or there is no /proc to find anything in.

        `prefix` is the common beginning of the markers of this daemon's children.
        """
        if sys.platform != "linux" or self._process is not None:
            return
        command = [sys.executable, "-I", "-S", "-c", _PROGRAM, f"{MARKER}={prefix}"]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
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
