"""An `mcp-gateway` program for shells and daemons that runs as a fork (`tests/fork_server.py`).

The program sends its streams, arguments, environment and directory over a socket to the test process, which starts the
fork. It forwards signals, and exits with the exit code of the fork. The fork is killed when the program ends.
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
from tests.forked import INTEGER_BYTES


class ForkLauncher:
    """The directory of the program, and the threads that serve it."""

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
            threading.Thread(target=_serve, args=(connection,), daemon=True).start()


@cache
def fork_launcher() -> ForkLauncher:
    return ForkLauncher()


def _serve(connection: socket.socket) -> None:
    with connection:
        length, streams, *_ = socket.recv_fds(connection, INTEGER_BYTES, 3)
        request = os.fsdecode(connection.recv(int.from_bytes(length), socket.MSG_WAITALL))
        folder, count, *rest = request.split("\0")
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
        waiter = threading.Thread(target=_send_exit_code, args=(process, connection), daemon=True)
        waiter.start()
        with suppress(OSError):
            while number := connection.recv(1):
                process.send_signal(number[0])
        process.kill()  # the program has ended, or has received the exit code
        waiter.join()


def _send_exit_code(process: "subprocess.Popen[bytes]", connection: socket.socket) -> None:
    code = process.wait()
    with suppress(OSError):
        connection.sendall(code.to_bytes(INTEGER_BYTES, signed=True))
        connection.shutdown(socket.SHUT_RDWR)
