"""The `mcp-gateway` program of `tests/fork_launcher.py`."""

import os
import signal
import socket
import sys

INTEGER_BYTES = 4
"""The size of lengths and exit codes in messages."""


def _launch(address: str, *words: str) -> int:
    variables = [f"{name}={value}" for name, value in os.environ.items()]
    request = os.fsencode("\0".join([os.getcwd(), str(len(words)), *words, *variables]))  # noqa: PTH109 - avoids importing pathlib
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [len(request).to_bytes(INTEGER_BYTES)], [0, 1, 2])
        connection.sendall(request)
        for signal_number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signal_number, lambda number, _: connection.send(bytes([number])))
        return int.from_bytes(connection.recv(INTEGER_BYTES), signed=True)


if __name__ == "__main__":
    code = _launch(*sys.argv[1:])
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)
