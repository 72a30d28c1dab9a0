"""An `mcp-gateway` program that runs as a fork, for other processes: shells, and daemons with upstreams.

It hands its streams, words, variables and directory over a socket to the test process, which starts a `FORKED` with
them (`tests/fork_server.py`). It passes signals on, and ends as the fork does; the fork ends with it.
"""

import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.fork_server import FORKED
from tests.forked import NUMBER


class ForkLauncher:
    """The directory of the program, and the threads that answer it."""

    def __init__(self) -> None:
        self._directory: Final = TemporaryDirectory(prefix="mcp-gateway-forks-", ignore_cleanup_errors=True)
        self.folder: Final = Path(self._directory.name)
        """For the PATH."""
        self.program: Final = self.folder / "mcp-gateway"
        address, script = self.folder / "socket", Path(__file__).with_name("forked.py")
        self._listener: Final = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(address))
        self._listener.listen()
        self.program.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {script} {address} "$@"\n')
        self.program.chmod(0o755)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=_answer, args=(connection,), daemon=True).start()


@cache
def fork_launcher() -> ForkLauncher:
    """Return that of this process."""
    return ForkLauncher()


def _answer(connection: socket.socket) -> None:
    with connection:
        length, streams, *_ = socket.recv_fds(connection, NUMBER, 3)
        order = os.fsdecode(connection.recv(int.from_bytes(length), socket.MSG_WAITALL))
        folder, count, *rest = order.split("\0")
        words, variables = rest[: int(count)], rest[int(count) :]
        stdin, stdout, stderr = streams
        process = subprocess.Popen(
            [FORKED, *words],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=folder,
            env=dict(each.split("=", 1) for each in variables),
        )
        for each in streams:
            os.close(each)
        ending = threading.Thread(target=_end, args=(process, connection), daemon=True)
        ending.start()
        with suppress(OSError):
            while number := connection.recv(1):
                process.send_signal(number[0])
        process.kill()  # the client is gone, or has its response
        ending.join()


def _end(process: "subprocess.Popen[bytes]", connection: socket.socket) -> None:
    code = process.wait()
    with suppress(OSError):
        connection.sendall(code.to_bytes(NUMBER, signed=True))
        connection.shutdown(socket.SHUT_RDWR)
