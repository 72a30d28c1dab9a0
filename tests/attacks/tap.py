"""A relay in front of a daemon that searches every byte of its output for secrets."""

import socket
import struct
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from tests.attacks.loopback import Loopback

_RESET: Final = struct.pack("ii", 1, 0)
"""The value of SO_LINGER that resets the connection on `close`."""


class Scanner:
    """Finds marks in a stream, including marks that are split between chunks."""

    def __init__(self, marks: Iterable[tuple[str, bytes]]) -> None:
        self._marks: Final = tuple(marks)
        self._longest: Final = max(len(mark) for _, mark in self._marks)
        self.found: Final[list[str]] = []

    def scan(self, kept: bytes, data: bytes) -> bytes:
        """Search `data`, which follows `kept`. Return the end of the data, to be passed with the next chunk."""
        seen = kept + data
        self.found.extend(f"{name}: …{seen[-300:]!r}" for name, mark in self._marks if mark in seen)
        return seen[-self._longest :]


class Tap:
    """Forwards data in both directions, including the end of the stream and resets."""

    def __init__(self, port: int, *, scanner: Scanner) -> None:
        self._port: Final = port
        self._sieve: Final = scanner
        self._loopback: Final = Loopback(self._relay, backlog=512)

    @property
    def port(self) -> int:
        return self._loopback.port

    def close(self) -> None:
        self._loopback.close()

    def _relay(self, client: socket.socket) -> None:
        try:
            daemon = socket.create_connection(("127.0.0.1", self._port))
        except OSError:
            client.close()
            return
        back = threading.Thread(target=self._forward, args=(daemon, client), kwargs={"is_scanned": True}, daemon=True)
        back.start()
        self._forward(client, daemon, is_scanned=False)
        back.join()
        client.close()
        daemon.close()

    def _forward(self, source: socket.socket, target: socket.socket, *, is_scanned: bool) -> None:
        kept = b""
        try:
            while data := source.recv(65536):
                if is_scanned:
                    kept = self._sieve.scan(kept, data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            for end in (source, target):
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    end.shutdown(socket.SHUT_RDWR)
