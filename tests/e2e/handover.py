"""Start a program with listening sockets, as systemd's socket activation does (sd_listen_fds(3)).

Run as a script, it is that program until it becomes the other one: descriptors from 3 on, and LISTEN_PID its own.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from socket import socket

FIRST = 3


def handing_over(sockets: Sequence[socket], *command: str, names: str = "") -> tuple[str, ...]:
    """The command that starts `command` with these sockets; they must be passed to it, see `pass_fds`."""
    numbers = ",".join(str(each.fileno()) for each in sockets)
    return (sys.executable, "-S", "-E", str(Path(__file__)), numbers, names, *command)


def _become(numbers: str, names: str, *command: str) -> None:
    high = [os.dup(int(number)) for number in numbers.split(",")]
    lowest = [os.dup2(number, 100 + index) for index, number in enumerate(high)]
    for index, number in enumerate(lowest):
        os.dup2(number, FIRST + index)
        os.close(number)
    os.closerange(FIRST + len(lowest), 100)
    os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(lowest)), "LISTEN_FDNAMES": names}
    os.execv(command[0], command)


if __name__ == "__main__":
    _become(*sys.argv[1:])
