"""Checks the addresses that outbound HTTP requests connect to.

Threat: server-side request forgery. An argument, a redirect or a DNS response can direct a request to this machine, to
its network, or to the metadata service of its cloud. The guard checks the resolved address when a socket is created.
Therefore, neither unusual spellings of a host (decimal, octal) nor a later DNS response can bypass the guard.
"""

import errno
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

import msgspec
from aiohttp import AddrInfoType
from yarl import URL

from gateway.config.diagnostics.problems import Problems
from gateway.config.models.backends import AllowPrivate

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class AddressRefusedError(OSError):
    """Raised for a blocked address. After an `OSError`, aiohttp tries the next address of the host."""

    def __init__(self, kind: str) -> None:
        super().__init__(errno.EACCES, f"the host has {kind}, which is not allowed")
        self.kind = kind


class AddressGuard(msgspec.Struct, frozen=True):
    """Checks the address of each connection before its socket is created."""

    allowed: frozenset[Network] = frozenset()
    allows_all: bool = False

    def open_socket(self, info: AddrInfoType) -> socket.socket:
        """Create a socket for the address in `info`. Raise AddressRefusedError if the address is not allowed."""
        family, kind, protocol, _, address = info
        self._check(_spelled_address(str(address[0])))
        return socket.socket(family=family, type=kind, proto=protocol)

    def check_spelled(self, host: str) -> None:
        """Check a host without a DNS lookup. Raise AddressRefusedError for a blocked IP address or `localhost`."""
        host = host.lower().rstrip(".")
        # RFC 6761 §6.3: `localhost` and its subdomains mean loopback. Debian's /etc/hosts also has `ip6-localhost`.
        if host.endswith("localhost"):
            self._check(_LOOPBACK)
        elif (address := _spelled_address(host)) is not None:
            self._check(address)

    def _check(self, address: Address | None) -> None:
        if self.allows_all:
            return
        if address is None:
            raise AddressRefusedError("an invalid address")
        # Check each form, because an allowed IPv6 range must not allow embedded private IPv4 addresses.
        for form in _all_forms(address):
            kind = kind_of_private(form)
            if kind is not None and not any(form in network for network in self.allowed):
                raise AddressRefusedError(kind)


class AddressPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The private hosts and networks that `allow_private` allows."""

    hosts: frozenset[str] = frozenset()
    guard: AddressGuard = AddressGuard()

    def guard_for(self, host: str) -> AddressGuard:
        # RFC 1034 §3.1: a final dot makes a name absolute, but does not change the host.
        return _UNGUARDED if host.lower().rstrip(".") in self.hosts else self.guard


_HOST: Final = re.compile(r"[\w-]+(?:\.[\w-]+)*\.?")
_UNGUARDED: Final = AddressGuard(allows_all=True)
PUBLIC_ONLY: Final = AddressPolicy()
ANYWHERE: Final = AddressPolicy(guard=_UNGUARDED)


def compile_policy(allow_private: AllowPrivate, problems: Problems) -> AddressPolicy:
    """Compile `allow_private`. An entry is an address, a network such as 10.0.0.0/8, or a host name."""
    if isinstance(allow_private, bool):
        return ANYWHERE if allow_private else PUBLIC_ONLY
    networks: set[Network] = set()
    hosts: set[str] = set()
    for index, entry in enumerate(allow_private):
        try:
            # RFC 3986 §3.2.2: URLs write IPv6 addresses in brackets.
            networks.add(ip_network(entry.strip("[]")))
        except ValueError as error:
            if "/" in entry:
                problems.at(index).error(f"is not a network: {error}. Expected a network such as 10.0.0.0/8")
            elif _HOST.fullmatch(entry) is None:
                message = "expected a host name, an address, or a network such as 10.0.0.0/8, without port or wildcard"
                problems.at(index).error(message)
            else:
                # Non-ASCII names become A-labels (RFC 5890 §2.3.2.1), as in requests.
                with suppress(ValueError):
                    entry = URL.build(scheme="http", host=entry).raw_host or entry  # noqa: PLW2901
                hosts.add(entry.lower().rstrip("."))
    return AddressPolicy(hosts=frozenset(hosts), guard=AddressGuard(allowed=frozenset(networks)))


def kind_of_private(address: Address) -> str | None:
    """Describe the kind of a private address in words. Return None for a public address."""
    return next((kind for network, kind in _SPECIAL if address in network), None)


def _special(kind: str, *networks: str) -> list[tuple[Network, str]]:
    return [(ip_network(network), kind) for network in networks]


_SPECIAL: Final = (
    *_special("a loopback address", "127.0.0.0/8", "::1/128"),
    # RFC 3927, RFC 4291. The metadata services of clouds are at 169.254.169.254, fd00:ec2::254 and 168.63.129.16.
    *_special("a link-local address", "169.254.0.0/16", "fe80::/10"),
    *_special("a cloud's internal address", "168.63.129.16/32"),
    # RFC 1918, RFC 4193. RFC 3879 deprecates fec0::/10, which may still be in use.
    *_special("a private address", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10"),
    # RFC 6598. Alibaba Cloud's metadata service is at 100.100.100.200.
    *_special("a carrier's internal address", "100.64.0.0/10"),
    # Linux connects 0.0.0.0 and :: to the machine itself.
    *_special("an unspecified address", "0.0.0.0/8", "::/128"),
    *_special("a multicast or broadcast address", "224.0.0.0/4", "255.255.255.255/32", "ff00::/8"),
    # RFC 6890 and IANA's special-purpose registries: no public hosts use these addresses.
    *_special("a reserved address", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15"),
    *_special("a reserved address", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4"),
    *_special("a reserved address", "64:ff9b:1::/48", "100::/64", "2001:2::/48", "2001:10::/28", "2001:db8::/32"),
    *_special("a reserved address", "::/96", "3fff::/20", "5f00::/16"),
    # RFC 4291 §2.4: only 2000::/3 is assigned. Overlay networks such as Yggdrasil (200::/7) use the unassigned ranges.
    *_special("a reserved address", "100::/8", "200::/7", "400::/6", "800::/5", "1000::/4", "4000::/2", "8000::/1"),
)
"""Networks that are not public, with descriptions of their addresses for errors. The first match applies."""


_LOOPBACK: Final = IPv4Address("127.0.0.1")


def _spelled_address(text: str) -> Address | None:
    try:
        # RFC 4007 §11.2: a zone can follow a percent sign. The zone does not change the kind of the address.
        return ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        try:
            return IPv4Address(socket.inet_aton(text))
        except OSError:
            return None


def _all_forms(address: Address) -> Iterator[Address]:
    yield address
    if isinstance(address, IPv6Address):
        number = int(address)
        for network, shift, mask in _EMBEDDINGS:
            if address in network:
                yield IPv4Address((number >> shift ^ mask) & 0xFFFFFFFF)
        if (number >> 32) & 0xFFFFFFFF in {0x00005EFE, 0x02005EFE}:  # ISATAP: RFC 5214 §6.1
            yield IPv4Address(number & 0xFFFFFFFF)


_EMBEDDINGS: Final = (
    (IPv6Network("::ffff:0:0/96"), 0, 0),  # mapped: RFC 4291 §2.5.5.2
    (IPv6Network("::ffff:0:0:0/96"), 0, 0),  # translated: RFC 7915
    (IPv6Network("64:ff9b::/96"), 0, 0),  # NAT64: RFC 6052
    (IPv6Network("2002::/16"), 80, 0),  # 6to4: RFC 3056
    (IPv6Network("2001::/32"), 0, 0xFFFFFFFF),  # Teredo's client, with inverted bits: RFC 4380 §4
    (IPv6Network("2001::/32"), 64, 0),  # Teredo's server
)
"""IPv6 networks, each with the bit offset of the embedded IPv4 address and a mask that is XORed with it."""
