"""Decides which forwarded headers to trust. No I/O.

Reverse proxies report the client and the requested URL in `X-Forwarded-For/-Proto/-Host/-Prefix`. Any client can send
these headers too. Threats:

- A client connects directly. Only peers in `listen.trusted_proxies` are trusted.
- A proxy appends to the client's own values, so the address chain is read from the right. The first address that is not
  a trusted proxy is the client. Scheme and host are taken from the same position.
- A prefix such as `//evil.example.com`, or a host with a path, would change our URLs. Each value must match a strict
  pattern.

Trusted proxies must set or remove every header listed above. The header `Forwarded` (RFC 7239) is not read.
"""

import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final
from urllib.parse import urlsplit

import msgspec
from multidict import MultiMapping

from gateway.config.models.address import UNIX, parse_network

IpAddress = IPv4Address | IPv6Address

# The longest addresses have 15 characters (IPv4) or 45 (IPv6 with an embedded IPv4 address).
_NODE: Final = re.compile(
    r"(?P<v4>[0-9.]{7,15})(?::[0-9]{1,5})?|\[(?P<v6>[0-9A-Fa-f:.]{2,45})\](?::[0-9]{1,5})?|(?P<bare>[0-9A-Fa-f:.]{2,45})"
)
_HOST: Final = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
_SCHEME: Final = re.compile(r"https?", re.IGNORECASE)
# No empty segments, because `//host` names a host (RFC 3986 §4.2). No dot segments, because clients resolve them
# (§5.2.4).
_SEGMENT: Final = r"(?!\.{1,2}(?:/|$))[A-Za-z0-9._~!$&'()*+;=:@-]+"
_PREFIX: Final = re.compile(rf"(?:/{_SEGMENT})+")


class ClientEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    address: str
    """The client's address, or an empty string if the transport has no addresses."""
    scheme: str
    host: str
    """The `Host` that the client sent, including the port."""
    prefix: str
    """The path prefix that the client used, without a trailing slash, or an empty string."""
    public_url: str | None = None

    @property
    def base_url(self) -> str:
        """The base URL of the gateway as the client sees it, without a trailing slash."""
        return self.public_url or f"{self.scheme}://{self.host}{self.prefix}"


class TrustedProxies:
    def __init__(self, networks: Iterable[str] = (), *, public_url: str | None = None) -> None:
        """Parse the trusted `networks` (addresses, ranges or `unix:`). `public_url` overrides the forwarded URL."""
        listed = tuple(networks)
        self._networks: Final = tuple(parse_network(text) for text in listed if text != UNIX)
        self._trusts_unix: Final = UNIX in listed
        self._public_url: Final = public_url.rstrip("/") if public_url else None
        self._public_prefix: Final = urlsplit(self._public_url).path if self._public_url else None

    @property
    def prefix(self) -> str:
        return self._public_prefix or ""

    def client_endpoint(self, *, peer: str, scheme: str, host: str, fields: MultiMapping[str]) -> ClientEndpoint:
        """Return the client's address and the requested URL, from the connection and the request headers."""
        address = plain_address(peer)
        if not (self._networks or self._trusts_unix) or not self._trusts(address):
            return ClientEndpoint(
                address=address, scheme=scheme, host=host, prefix=self.prefix, public_url=self._public_url
            )
        chain, schemes, hosts, prefixes = (
            _items(fields.getall(f"X-Forwarded-{name}", ())) for name in ("For", "Proto", "Host", "Prefix")
        )
        client, hops = self._client(address, chain)
        # Proxies disagree about the meaning of several prefixes.
        prefix = prefixes[0].rstrip("/") if len(prefixes) == 1 and _PREFIX.fullmatch(prefixes[0].rstrip("/")) else ""
        return ClientEndpoint(
            address=client,
            scheme=_matching(_SCHEME, _at(schemes, hops)) or scheme,
            host=_matching(_HOST, _at(hosts, hops)) or host,
            prefix=prefix if self._public_prefix is None else self._public_prefix,
            public_url=self._public_url,
        )

    def _trusts(self, address: str) -> bool:
        # Peers on Unix sockets have no address.
        if not address:
            return self._trusts_unix
        parsed = _parsed_address(address)
        return parsed is not None and any(parsed in network for network in self._networks)

    def _client(self, peer: str, chain: Sequence[str]) -> tuple[str, int]:
        """Return the client's address, and its position in `chain`. The last item of the chain has position 1."""
        believed, hops = peer, 0
        for text in reversed(chain):
            address = _parsed_node(text)
            # An unknown node cannot be trusted, and neither can the values to its left.
            if address is None:
                break
            believed, hops = str(address), hops + 1
            if not self._trusts(believed):
                break
        # The trusted peer itself wrote the last element, even if it contains no address.
        return believed, max(hops, 1)


def plain_address(text: str) -> str:
    """Convert an IPv4-mapped IPv6 address to IPv4."""
    # Dual-stack sockets report IPv4 peers as `::ffff:127.0.0.1`, which older Python versions do not treat as loopback.
    # Skip parsing for all other addresses.
    if not text.startswith("::"):
        return text
    parsed = _parsed_address(text)
    return text if parsed is None else str(parsed)


def _parsed_address(text: str) -> IpAddress | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped if isinstance(address, IPv6Address) else None) or address


def _parsed_node(text: str) -> IpAddress | None:
    """Parse an address with or without a port. Return None for any other text, such as `unknown`."""
    match = _NODE.fullmatch(text)
    return None if match is None else _parsed_address(match["v4"] or match["v6"] or match["bare"])


def _items(lines: Iterable[str]) -> list[str]:
    """Split a comma-separated header across all its lines (RFC 9110 §5.3)."""
    return [item.strip(" \t") for line in lines for item in line.split(",")]


def _at(items: Sequence[str], hops: int) -> str | None:
    """Return the item at position `hops` from the right (1 is the last item), or the first item of a shorter list."""
    return items[-min(hops, len(items))] if items else None


def _matching(pattern: re.Pattern[str], text: str | None) -> str | None:
    return text.lower() if text is not None and pattern.fullmatch(text) else None
