"""An address or a range of addresses, as in `listen.trusted_proxies`."""

from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final

Network = IPv4Network | IPv6Network

UNIX: Final = "unix:"
"""Any peer of a Unix socket, whose file's mode says who may connect."""
EXPECTED: Final = "expected an address, a range such as 10.0.0.0/8 or fd00::/8, or unix:"
_MAPPED_BITS: Final = 96
"""`::ffff:0:0/96` holds the IPv4 addresses (RFC 4291 §2.5.5.2)."""


def parse_network(text: str) -> Network:
    """Read one; IPv4 in its IPv6 form is IPv4.

    Raises:
        ValueError: it is none; the text says what is expected.
    """
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        raise ValueError(EXPECTED) from None
    if not _is_exact(text):
        # `10.1.2.3/8` may be meant as the address or as the range, and the one is a great deal wider.
        raise ValueError(f"{text} is an address within the range {network}; write the range, or the address alone")
    if isinstance(network, IPv6Network) and network.prefixlen >= _MAPPED_BITS:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return IPv4Network((mapped, network.prefixlen - _MAPPED_BITS))
    return network


def _is_exact(text: str) -> bool:
    """Whether no bit is set outside of the range's own."""
    try:
        ip_network(text)
    except ValueError:
        return False
    return True
