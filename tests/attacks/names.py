"""A network namespace with a malicious name server, a public address and private addresses.

This program runs inside bubblewrap, where it can use any address and port. It prints the outcome of each fetch.
"""

import asyncio
import fcntl
import itertools
import json
import socket
import struct
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gateway.app.gateway import Gateway
from gateway.config.settings import read_settings

PUBLIC: Final = "93.184.215.14"
PRIVATE: Final = ("127.0.0.1", "10.0.0.5", "169.254.169.254", "192.168.0.7", "100.64.0.9")
FETCHES: Final = 12
CONFIG: Final = """
tools:
  fetch:
    description: Fetch from a host.
    input: {host: string}
    http: {url: "http://{host}/", timeout: 5s}
"""

RECORDS: Final[dict[str, Iterator[list[str]]]] = {
    "public.test": itertools.repeat([PUBLIC]),
    "loopback.test": itertools.repeat(["127.0.0.1"]),
    "private.test": itertools.repeat(["10.0.0.5"]),
    "metadata.test": itertools.repeat(["169.254.169.254"]),
    "carrier.test": itertools.repeat(["100.64.0.9"]),
    "zero.test": itertools.repeat(["0.0.0.0"]),
    "mapped.test": itertools.repeat(["::ffff:127.0.0.1"]),
    "translated.test": itertools.repeat(["64:ff9b::7f00:1"]),
    "rebinding.test": itertools.cycle([[PUBLIC], ["127.0.0.1"]]),
    "both.test": itertools.cycle([[PUBLIC, "10.0.0.5"], ["10.0.0.5", PUBLIC]]),
}


def add_address(address: str) -> None:
    """Add an address to the loopback interface (netdevice(7): SIOCSIFADDR of an alias)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        alias = f"lo:{next(_ALIASES)}".encode()
        request = struct.pack("16sHH4s8x", alias, socket.AF_INET, 0, socket.inet_aton(address))
        fcntl.ioctl(control, 0x8916, request)


_ALIASES: Final = itertools.count(1)


def answer_names(server: socket.socket) -> None:
    while True:
        query, peer = server.recvfrom(512)
        server.sendto(_answer(query), peer)


def _answer(query: bytes) -> bytes:
    """Return a response with the addresses of the requested type, with a TTL of 0 (RFC 1035 §4)."""
    labels, at = [], 12
    while size := query[at]:
        labels.append(query[at + 1 : at + 1 + size].decode())
        at += size + 1
    kind = struct.unpack("!H", query[at + 1 : at + 3])[0]
    family = {1: socket.AF_INET, 28: socket.AF_INET6}.get(kind)
    addresses = _addresses(".".join(labels[1:]).lower(), family)
    records = b"".join(
        b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 0, len(packed)) + packed
        for packed in (socket.inet_pton(family or 0, address) for address in addresses)
    )
    return query[:2] + b"\x81\x80" + struct.pack("!HHHH", 1, len(addresses), 0, 0) + query[12 : at + 5] + records


def _addresses(name: str, family: int | None) -> list[str]:
    if name not in RECORDS or family is None:
        return []
    is_wanted = {socket.AF_INET: lambda address: ":" not in address, socket.AF_INET6: lambda address: ":" in address}
    first = next(RECORDS[name]) if family == socket.AF_INET or name in {"mapped.test", "translated.test"} else []
    return [address for address in first if is_wanted[socket.AddressFamily(family)](address)]


def serve(address: str) -> None:
    """Respond to every request with the address of the listener."""
    listener = socket.create_server((address, 80))

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                body = f"reached {address}"
                connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    threading.Thread(target=accept, daemon=True).start()


async def fetch_all() -> dict[str, list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.yaml")
        config.write_text(CONFIG)
        async with Gateway(read_settings({"config": config, "log_level": "error", "no_watch": True})) as gateway:
            client = gateway.memory_client()
            said: dict[str, list[str]] = {}
            for name in RECORDS:
                for number in range(FETCHES):
                    arguments = {"host": f"time-{number}.{name}"}  # a new name, because lookups are cached
                    result = await client.request("tools/call", {"name": "fetch", "arguments": arguments})
                    said.setdefault(name, []).append(result["content"][0]["text"])
            return said


if __name__ == "__main__":
    for each in (PUBLIC, *PRIVATE[1:]):
        add_address(each)
    for each in (PUBLIC, *PRIVATE):
        serve(each)
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind(("127.0.0.1", 53))
    threading.Thread(target=answer_names, args=(names,), daemon=True).start()
    json.dump(asyncio.run(fetch_all()), sys.stdout)
