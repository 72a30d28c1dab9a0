"""The URLs under which clients may know us, and for which tokens may therefore be meant (RFC 8707)."""

from collections.abc import Iterator
from typing import Final

from gateway.config.address import Address
from gateway.config.server import Listen
from gateway.transports.http_sse import SSE_PATH

_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


def own_urls(listen: Listen, address: Address) -> Iterator[str]:
    """The MCP endpoint, and the one of HTTP+SSE, at `public_url`; without one at the address that is listened on.

    Where every interface is listened on, only this machine's own names are known by themselves.
    """
    for path in (listen.path, *([SSE_PATH] if listen.sse else [])):
        for base in _bases(listen, address):
            yield f"{base}{path}"


def _bases(listen: Listen, address: Address) -> Iterator[str]:
    if listen.public_url is not None:
        yield listen.public_url.rstrip("/")
        return
    scheme = "http" if listen.tls is None else "https"
    host = f"[{address.host}]" if ":" in address.host else address.host
    names = _LOOPBACK if address.from_here != address or address.is_loopback else ()
    yield from (f"{scheme}://{name}:{address.port}" for name in dict.fromkeys([host, *names]))
