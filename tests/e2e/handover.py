"""Start a program with listening sockets, as systemd's socket activation does (sd_listen_fds(3)).

This script sets LISTEN_PID and moves the sockets to the descriptors 3, 4, … Then it executes the other program. For
forked programs, `tests/fork_server.py` does the same.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

FIRST = 3


def handing_over(descriptors: Sequence[int], *command: str) -> tuple[str, ...]:
    """Return a command that runs `command` with these sockets, which must also be in `pass_fds`."""
    return (sys.executable, "-S", "-E", str(Path(__file__)), ",".join(map(str, descriptors)), *command)


def _become(numbers: str, *command: str) -> None:
    high = [os.dup(int(number)) for number in numbers.split(",")]
    lowest = [os.dup2(number, 100 + index) for index, number in enumerate(high)]
    for index, number in enumerate(lowest):
        os.dup2(number, FIRST + index)
        os.close(number)
    os.closerange(FIRST + len(lowest), 100)
    os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(lowest))}
    os.execv(command[0], command)


if __name__ == "__main__":
    _become(*sys.argv[1:])
