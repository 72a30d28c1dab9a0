"""A relay in front of a daemon that searches every byte of its output for secrets."""

import socket
import struct
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from tests.attacks.loopback import Loopback

_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER that makes `close` a reset."""


class Sieve:
    """Finds marks in what passes, also where one is cut in two."""

    def __init__(self, marks: Iterable[tuple[str, bytes]]) -> None:
        self._marks: Final = tuple(marks)
        self._longest: Final = max(len(mark) for _, mark in self._marks)
        self.found: Final[list[str]] = []

    def sift(self, kept: bytes, data: bytes) -> bytes:
        """Look through `data`, which came after `kept`; returns what to keep for the next."""
        seen = kept + data
        self.found.extend(f"{name}: …{seen[-300:]!r}" for name, mark in self._marks if mark in seen)
        return seen[-self._longest :]


class Tap:
    """Threads pass on what comes, each end's farewell included."""

    def __init__(self, port: int, *, sieve: Sieve) -> None:
        self._port: Final = port
        self._sieve: Final = sieve
        self._loopback: Final = Loopback(self._relay, backlog=512)

    @property
    def port(self) -> int:
        """Where to connect to instead."""
        return self._loopback.port

    def close(self) -> None:
        self._loopback.close()

    def _relay(self, client: socket.socket) -> None:
        try:
            daemon = socket.create_connection(("127.0.0.1", self._port))
        except OSError:
            client.close()
            return
        back = threading.Thread(target=self._pass_on, args=(daemon, client), kwargs={"is_sifted": True}, daemon=True)
        back.start()
        self._pass_on(client, daemon, is_sifted=False)
        back.join()
        client.close()
        daemon.close()

    def _pass_on(self, source: socket.socket, target: socket.socket, *, is_sifted: bool) -> None:
        kept = b""
        try:
            while data := source.recv(65536):
                if is_sifted:
                    kept = self._sieve.sift(kept, data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            for end in (source, target):
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    end.shutdown(socket.SHUT_RDWR)
