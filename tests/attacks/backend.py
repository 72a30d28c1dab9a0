"""A server behind the daemon that records every request as bytes."""

import re
import socket
from contextlib import suppress
from typing import Final

from tests.attacks.loopback import Loopback

ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n" + b'{"ok":true}'


class Backend:
    """Accepts one request per connection, and always responds with `answer`."""

    def __init__(self) -> None:
        self.requests: Final[list[bytes]] = []
        self.answer = ANSWER
        self._loopback: Final = Loopback(self._serve)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._loopback.port}"

    @property
    def last_fields(self) -> list[tuple[bytes, bytes]]:
        """The header fields of the last request, split only at CRLF."""
        head = self.requests[-1].split(b"\r\n\r\n", 1)[0]
        pairs = (line.partition(b":") for line in head.split(b"\r\n")[1:])
        return [(name.lower(), value.strip(b" \t")) for name, _, value in pairs]

    def close(self) -> None:
        self._loopback.close()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(20)
            self.requests.append(_whole_request(connection))
            connection.sendall(self.answer)


def _whole_request(connection: socket.socket) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received and (chunk := connection.recv(65536)):
        received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"(?im)^content-length: *([0-9]+)", head)
    missing = int(length[1]) - len(body) if length else 0
    while missing > 0 and (chunk := connection.recv(65536)):
        received, missing = received + chunk, missing - len(chunk)
    return received
