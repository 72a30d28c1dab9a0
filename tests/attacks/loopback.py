"""A listener on loopback that handles each connection in a separate thread."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final


class Loopback:
    """Listens on a free port. `serve` must close each connection."""

    def __init__(self, serve: Callable[[socket.socket], None], *, backlog: int = 64) -> None:
        self._serve: Final = serve
        self._listener: Final = socket.create_server(("127.0.0.1", 0), backlog=backlog)
        self.port: Final[int] = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes up the thread
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
