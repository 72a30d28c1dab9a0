"""An attacker's server. It sends the exact bytes that a test defines, and records its requests."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

HOST: Final = "127.0.0.2"
"""Another loopback address than that of the canary."""

Answer = Callable[[bytes], Iterator[bytes]]
"""Receives the head of a request, and yields chunks of the response."""


@dataclass(kw_only=True)
class Web:
    port: int
    host: str = HOST
    answers: dict[str, Answer] = field(default_factory=dict)
    """Responses by path. The default is `ok`."""
    seen: list[bytes] = field(default_factory=list, repr=False)
    """All requests, with the start of their bodies."""

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(20)
            received = b""
            while b"\r\n\r\n" not in received and (chunk := connection.recv(65536)):
                received += chunk
            self.seen.append(received)
            target = received.split(b" ", 2)[1:2] or [b""]
            path = target[0].decode("latin-1").partition("?")[0]
            for piece in self.answers.get(path, ok)(received):
                connection.sendall(piece)

    def accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()


def reply(body: bytes, *fields: str, status: str = "200 OK") -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *fields]
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body


def ok(_request: bytes) -> Iterator[bytes]:
    yield reply(b"ok", "Content-Type: text/plain")


@contextmanager
def serving(host: str = HOST) -> Iterator[Web]:
    with socket.create_server((host, 0)) as listener:
        web = Web(host=host, port=listener.getsockname()[1])
        thread = threading.Thread(target=web.accept, args=(listener,), daemon=True)
        thread.start()
        try:
            yield web
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join()
