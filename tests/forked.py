"""The script behind the `mcp-gateway` of `tests/fork_launcher.py`: run in its place, it passes on and waits."""

import os
import signal
import socket
import sys

NUMBER = 4
"""Bytes of a length, and of an exit code."""


def _launch(address: str, *words: str) -> int:
    variables = [f"{name}={value}" for name, value in os.environ.items()]
    order = os.fsencode("\0".join([os.getcwd(), str(len(words)), *words, *variables]))  # noqa: PTH109 - starts sooner
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [len(order).to_bytes(NUMBER)], [0, 1, 2])
        connection.sendall(order)
        for passed_on in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(passed_on, lambda number, _: connection.send(bytes([number])))
        return int.from_bytes(connection.recv(NUMBER), signed=True)


if __name__ == "__main__":
    code = _launch(*sys.argv[1:])
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)
