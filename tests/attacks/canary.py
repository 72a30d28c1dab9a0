"""What must stay untouched: an address that nobody may connect to, a file that nobody may read, a name never made."""

import secrets
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final


class Canary:
    """Lies outside every root; its listener is on loopback."""

    def __init__(self, folder: Path) -> None:
        self.file: Final = folder / "canary.txt"
        self.content: Final = f"canary-{secrets.token_hex(12)}"
        self.file.write_text(self.content)
        self.trophy: Final = folder / "trophy"
        """What a payload that runs would make."""
        self.reached: Final[list[bytes]] = []
        """What the listener was sent, once a connection."""
        self._listener: Final = socket.create_server(("127.0.0.1", 0))
        self.port: Final[int] = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection, suppress(OSError):
                    connection.settimeout(1)
                    self.reached.append(connection.recv(4096))
                    connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(self.content)}\r\n\r\n".encode())
                    connection.sendall(self.content.encode())
