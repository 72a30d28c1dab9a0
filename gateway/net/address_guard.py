"""The address guard: decides which addresses an HTTP backend may connect to. Opens no connection by itself.

Threat answered here: server-side request forgery. A value, a redirect or a DNS answer leads a request to the daemon's
own machine, its network, or the metadata service of its cloud. What is judged is the address that a socket is about to
be connected to, after all resolving, so that no spelling of a host (decimal, octal, a name that resolves to loopback,
a second DNS answer) gets past.
"""

import errno
import re
import socket
from collections.abc import Iterator
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
    """The guard lets no connection to this address through. An `OSError`, so that other addresses are still tried."""

    def __init__(self, kind: str) -> None:
        super().__init__(errno.EACCES, f"the host has {kind}, which is not allowed")
        self.kind = kind


class AddressGuard(msgspec.Struct, frozen=True):
    """Judges every socket of a connection pool."""

    allowed: frozenset[Network] = frozenset()
    """Private ranges that may be connected to nevertheless."""
    allows_all: bool = False

    def open_socket(self, info: AddrInfoType) -> socket.socket:
        """Make the socket that is to be connected to `info`.

        Raises:
            AddressRefusedError: it must not be connected to.
        """
        family, kind, protocol, _, address = info
        self._check(_spelled_address(str(address[0])))
        return socket.socket(family=family, type=kind, proto=protocol)

    def check_spelled(self, host: str) -> None:
        """Judge a host that a proxy will resolve: all that can be seen of it is how it is spelled.

        Raises:
            AddressRefusedError: it is spelled as an address that must not be connected to.
        """
        host = host.lower().rstrip(".")
        # RFC 6761 §6.3: this name and those below it mean loopback. So does `ip6-localhost` in Debian's /etc/hosts.
        if host.endswith("localhost"):
            self._check(_LOOPBACK)
        elif (address := _spelled_address(host)) is not None:
            self._check(address)

    def _check(self, address: Address | None) -> None:
        if self.allows_all:
            return
        if address is None:
            raise AddressRefusedError("an address that cannot be read")
        # Each form by itself: an allowed range does not let through the private addresses that are embedded in it.
        for form in _all_forms(address):
            kind = kind_of_private(form)
            if kind is not None and not any(form in network for network in self.allowed):
                raise AddressRefusedError(kind)


class AddressPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled `allow_private`."""

    hosts: frozenset[str] = frozenset()
    """Names that may resolve to any address."""
    guard: AddressGuard = AddressGuard()

    def guard_for(self, host: str) -> AddressGuard:
        """The guard for a request to `host`."""
        # RFC 1034 §3.1: a dot at the end makes a name absolute; it is the same host.
        return _UNGUARDED if host.lower().rstrip(".") in self.hosts else self.guard


_HOST: Final = re.compile(r"[\w-]+(?:\.[\w-]+)*\.?")
_UNGUARDED: Final = AddressGuard(allows_all=True)
PUBLIC_ONLY: Final = AddressPolicy()
ANYWHERE: Final = AddressPolicy(guard=_UNGUARDED)


def compile_policy(allow_private: AllowPrivate, problems: Problems) -> AddressPolicy:
    """Compile `allow_private`; an entry with a slash, or an address, is a network, all others are host names."""
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
                problems.at(index).error(f"is not a network: {error}; expected one such as 10.0.0.0/8")
            elif _HOST.fullmatch(entry) is None:
                message = "expected a host name, an address, or a network such as 10.0.0.0/8; no port and no wildcard"
                problems.at(index).error(message)
            else:
                hosts.add(_as_sent(entry).lower().rstrip("."))
    return AddressPolicy(hosts=frozenset(hosts), guard=AddressGuard(allowed=frozenset(networks)))


def _as_sent(host: str) -> str:
    """A name as requests have it: A-labels for what is not ASCII (RFC 5890 §2.3.2.1)."""
    try:
        return URL.build(scheme="http", host=host).raw_host or host
    except ValueError:  # no name that there could be
        return host


def kind_of_private(address: Address) -> str | None:
    """Say what kind of address this is if it is not one of the public internet."""
    return next((kind for network, kind in _SPECIAL if address in network), None)


def _special(kind: str, *networks: str) -> list[tuple[Network, str]]:
    return [(ip_network(network), kind) for network in networks]


_SPECIAL: Final = (
    *_special("a loopback address", "127.0.0.0/8", "::1/128"),
    # RFC 3927, RFC 4291; the metadata services of clouds are at 169.254.169.254, fd00:ec2::254 and 168.63.129.16.
    *_special("a link-local address", "169.254.0.0/16", "fe80::/10"),
    *_special("a cloud's internal address", "168.63.129.16/32"),
    # RFC 1918, RFC 4193; RFC 3879 deprecates fec0::/10, which may still be in use.
    *_special("a private address", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10"),
    # RFC 6598; Alibaba Cloud's metadata service is at 100.100.100.200.
    *_special("a carrier's internal address", "100.64.0.0/10"),
    # Linux connects 0.0.0.0 and :: to the machine itself.
    *_special("an unspecified address", "0.0.0.0/8", "::/128"),
    *_special("a multicast or broadcast address", "224.0.0.0/4", "255.255.255.255/32", "ff00::/8"),
    # RFC 6890 and IANA's special-purpose registries: nothing of the public internet lives there.
    *_special("a reserved address", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15"),
    *_special("a reserved address", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4"),
    *_special("a reserved address", "64:ff9b:1::/48", "100::/64", "2001:2::/48", "2001:10::/28", "2001:db8::/32"),
    *_special("a reserved address", "::/96", "3fff::/20", "5f00::/16"),
    # RFC 4291 §2.4: 2000::/3 is all that is assigned; overlay networks live in the rest, such as Yggdrasil in 200::/7.
    *_special("a reserved address", "100::/8", "200::/7", "400::/6", "800::/5", "1000::/4", "4000::/2", "8000::/1"),
)
"""In this order, so that the kind is the most telling one."""


_LOOPBACK: Final = IPv4Address("127.0.0.1")


def _spelled_address(text: str) -> Address | None:
    """Read an address, also as only the system's resolver takes it: 0x7f.1 is what it will connect to."""
    try:
        # RFC 4007 §11.2: a zone may follow a percent sign; it does not change the kind of the address.
        return ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        try:
            return IPv4Address(socket.inet_aton(text))
        except OSError:
            return None


def _all_forms(address: Address) -> Iterator[Address]:
    """The address, and the IPv4 addresses that it may be translated to on the way."""
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
    (IPv6Network("2001::/32"), 0, 0xFFFFFFFF),  # Teredo's client, its bits inverted: RFC 4380 §4
    (IPv6Network("2001::/32"), 64, 0),  # Teredo's server
)
"""Network, where in it an IPv4 address stands, and what that is XORed with."""
