"""An address, a file and a file name that attacks must not reach, read or create."""

import secrets
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.attacks.loopback import Loopback


class Canary:
    def __init__(self, folder: Path) -> None:
        self.file: Final = folder / "canary.txt"
        self.content: Final = f"canary-{secrets.token_hex(12)}"
        self.file.write_text(self.content)
        self.payload_file: Final = folder / "payload_file"
        """The file that a payload creates if it runs."""
        self.reached: Final[list[bytearray]] = []
        """The data that each connection sent to the listener. A silent connection counts too."""
        self._loopback: Final = Loopback(self._serve)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._loopback.port}/"

    @property
    def port(self) -> int:
        return self._loopback.port

    def close(self) -> None:
        self._loopback.close()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(1)
            self.reached.append(sent := bytearray())
            sent += connection.recv(4096)
            connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(self.content)}\r\n\r\n".encode())
            connection.sendall(self.content.encode())
