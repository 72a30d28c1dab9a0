"""Network addresses: host:port (`listen.http`, `--http`) and ranges (`listen.trusted_proxies`)."""

import re
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_interface
from typing import Final, Self

import msgspec

EXPECTED: Final = "expected host:port such as 127.0.0.1:8000, [::1]:8000 or :8000 (every interface)"
_PATTERN: Final = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\s:/\[\]@]*)):(?P<port>[0-9]{1,5})")


class Address(msgspec.Struct, frozen=True):
    """An address to listen on. Port 0 selects a free port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse host:port. An empty host means every interface.

        Raises:
            ValueError: the text is not an address. The message describes the format.
        """
        match = _PATTERN.fullmatch(text)
        if match is None or int(match["port"]) > 65535:
            raise ValueError(EXPECTED)
        return cls(match["v6"] or match["host"] or "0.0.0.0", int(match["port"]))  # noqa: S104 - asked for by `:port`

    @property
    def is_loopback(self) -> bool:
        return is_loopback_name(self.host)

    @property
    def is_wildcard(self) -> bool:
        try:
            return ip_address(self.host).is_unspecified
        except ValueError:
            return False

    @property
    def from_here(self) -> "Address":
        """The address for connections from this machine: loopback if the listener uses every interface."""
        return Address("::1" if ":" in self.host else "127.0.0.1", self.port) if self.is_wildcard else self

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


_HOST_AND_PORT: Final = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[^\s:@\[\]\\]+))(?::[0-9]{0,5})?")


def host_of(netloc: str) -> str:
    """Return the host of a URL's authority without brackets, or "" for an invalid authority.

    `urlsplit` would accept `[::1].example.com`.
    """
    match = _HOST_AND_PORT.fullmatch(netloc.rpartition("@")[2])
    return "" if match is None else match["v6"] or match["name"]


def is_loopback_name(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        # Not `*.localhost`: RFC 6761 §6.3 only asks resolvers to keep those names on this machine.
        return host.lower() == "localhost"


Network = IPv4Network | IPv6Network

UNIX: Final = "unix:"
"""Any peer of a Unix socket. The permissions of the socket file are the access control."""
_EXPECTED_NETWORK: Final = "expected an address, a range such as 10.0.0.0/8 or fd00::/8, or unix:"
_MAPPED_BITS: Final = 96
"""`::ffff:0:0/96` contains the IPv4 addresses (RFC 4291 §2.5.5.2)."""


def parse_network(text: str) -> Network:
    """Parse a network. IPv4-mapped IPv6 networks become IPv4.

    Raises:
        ValueError: the text is not a network. The message describes the format.
    """
    try:
        interface = ip_interface(text)
    except ValueError:
        raise ValueError(_EXPECTED_NETWORK) from None
    network = interface.network
    if interface.ip != network.network_address:
        # `10.1.2.3/8` is ambiguous, and the range is much larger than the address.
        address = text.partition("/")[0]
        raise ValueError(f"{text} has host bits set. Write {network} for the range, or {address} for the address")
    # Dual-stack sockets report IPv4 peers with mapped addresses.
    if isinstance(network, IPv6Network) and network.prefixlen >= _MAPPED_BITS:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return IPv4Network((mapped, network.prefixlen - _MAPPED_BITS))
    return network
