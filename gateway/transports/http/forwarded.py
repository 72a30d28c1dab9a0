"""Decides which forwarded headers of a request are believed. Pure: works on header fields, opens nothing.

A reverse proxy hides who asks and which URL they used, and says so in `X-Forwarded-For/-Proto/-Host/-Prefix` or
`Forwarded` (RFC 7239). Anybody can write these. Threats answered here, and only here:

- A client that reaches us directly invents them, to pass for another address (limits, logs, audit), for a Host that we
  answer to, or for TLS. Only peers in `listen.trusted_proxies` are believed.
- A client sends them through a proxy that appends: what it invented stands to the left. The chain of addresses is
  walked from the right, past trusted proxies alone, and the first other one is the client. The scheme and the host are
  taken from the same place in their lists.
- A client sends the family of fields that the proxy does not set (`Forwarded`, where the proxy sets `X-Forwarded-*`).
  Where both families speak about one thing and differ, neither is believed.
- A quote that a client leaves open swallows what the proxy appends: one error makes the whole field worthless.
- A prefix such as `//evil.example.com`, or a host with a path or credentials in it, turns a URL that we emit into
  somebody else's. Each value has one narrow form, and what has another is not believed.

What is not believed is as if it were not there: the connection says who asks, and `Host` for what.

What is left to the operator: a trusted proxy must set or remove each of these fields itself. One that hands a client's
own `X-Forwarded-Host` on unchanged has vouched for it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final
from urllib.parse import urlsplit

import msgspec
from multidict import MultiMapping

from gateway.config.models.address import UNIX, parse_network

IpAddress = IPv4Address | IPv6Address
Lines = tuple[str, ...]
"""The values of one field."""

_NAMES: Final = ("X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Prefix", "Forwarded")

_NAME: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PAIR: Final = re.compile(rf'({_NAME})=({_NAME}|"(?:[^"\\\x00-\x1f\x7f]|\\[^\x00-\x1f\x7f])*")[ \t]*([;,]|$)[ \t]*')
_QUOTED_PAIR: Final = re.compile(r"\\(.)")
# The longest addresses have 15 characters (IPv4), and 45 (IPv6 that ends in an IPv4 address).
_NODE: Final = re.compile(
    r"(?P<v4>[0-9.]{7,15})(?::[0-9]{1,5})?|\[(?P<v6>[0-9A-Fa-f:.]{2,45})\](?::[0-9]{1,5})?|(?P<bare>[0-9A-Fa-f:.]{2,45})"
)
_HOST: Final = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
_SCHEME: Final = re.compile(r"https?", re.IGNORECASE)
# No empty segment, for `//host` names another host (RFC 3986 §4.2), and no dot segment, which clients resolve (§5.2.4).
_SEGMENT: Final = r"(?!\.{1,2}(?:/|$))[A-Za-z0-9._~!$&'()*+;=:@-]+"
_PREFIX: Final = re.compile(rf"(?:/{_SEGMENT})+")


class ClientEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The endpoint as the client of a request knows it: its own address, and the scheme, host and prefix it used."""

    address: str
    """The client's; empty where the transport has none."""
    scheme: str
    host: str
    """As in `Host`: the name that the client used, with its port."""
    prefix: str
    """The path under which the client sees the daemon: empty, or without its last slash."""
    public_url: str | None = None

    @property
    def base_url(self) -> str:
        """The URL, without a slash at its end, under which the client reaches the daemon."""
        return self.public_url or f"{self.scheme}://{self.host}{self.prefix}"


class _ForwardedValues(msgspec.Struct, frozen=True):
    """The values of one family of fields; None where there is none that can be believed."""

    address: str | None = None
    scheme: str | None = None
    host: str | None = None
    prefix: str | None = None


class TrustedProxies:
    """Peers whose forwarded headers are believed."""

    def __init__(self, networks: Iterable[str] = (), *, public_url: str | None = None) -> None:
        """Read addresses, ranges and `unix:`; `public_url` outweighs what headers say of scheme, host and prefix.

        Raises:
            ValueError: one is neither an address nor a range.
        """
        listed = tuple(networks)
        self._networks: Final = tuple(parse_network(text) for text in listed if text != UNIX)
        self._trusts_unix: Final = UNIX in listed
        self._public_url: Final = public_url.rstrip("/") if public_url else None
        self._public_prefix: Final = urlsplit(self._public_url).path if self._public_url else None
        # Of the instance: a cache on the method would be shared by all instances, and keep them alive.
        self._trusts: Final = lru_cache(maxsize=1024)(self._is_listed)

    @property
    def prefix(self) -> str:
        """The path of `public_url`."""
        return self._public_prefix or ""

    def client_endpoint(self, *, peer: str, scheme: str, host: str, fields: MultiMapping[str]) -> ClientEndpoint:
        """Say how a request came.

        Args:
            peer: the address at the other end of the connection.
            scheme: `https` if the connection is TLS.
            host: the request's own `Host`.
            fields: all its header fields.
        """
        return self.client_endpoint_of(peer=peer, scheme=scheme, host=host, lines=self.believed_lines(peer, fields))

    def believed_lines(self, peer: str, fields: MultiMapping[str]) -> tuple[Lines, ...]:
        """Return the values of the fields that a peer is believed in; nothing for a peer that is not."""
        if not (self._networks or self._trusts_unix) or not self._trusts(plain_address(peer)):
            return ()
        return tuple(tuple(fields.getall(name, ())) for name in _NAMES)

    def client_endpoint_of(self, *, peer: str, scheme: str, host: str, lines: tuple[Lines, ...]) -> ClientEndpoint:
        """Do as `client_endpoint` does, with what `believed_lines` has returned for the same request."""
        address = plain_address(peer)
        if not lines:
            return ClientEndpoint(
                address=address, scheme=scheme, host=host, prefix=self.prefix, public_url=self._public_url
            )
        told = self._believed(address, lines)
        return ClientEndpoint(
            address=told.address or address,
            scheme=told.scheme or scheme,
            host=told.host or host,
            prefix=(told.prefix or "") if self._public_prefix is None else self._public_prefix,
            public_url=self._public_url,
        )

    def _is_listed(self, address: str) -> bool:
        # The peer on a Unix socket has no address.
        if not address:
            return self._trusts_unix
        parsed = _parsed_address(address)
        return parsed is not None and any(parsed in network for network in self._networks)

    def _believed(self, peer: str, lines: tuple[Lines, ...]) -> _ForwardedValues:
        *theirs_lines, standard_lines = lines
        theirs, standard = self._x_forwarded(peer, *theirs_lines), self._forwarded(peer, standard_lines)
        return _ForwardedValues(
            address=_agreed(theirs.address, standard.address),
            scheme=_agreed(theirs.scheme, standard.scheme),
            host=_agreed(theirs.host, standard.host),
            prefix=theirs.prefix,
        )

    def _x_forwarded(self, peer: str, chain: Lines, schemes: Lines, hosts: Lines, prefixes: Lines) -> _ForwardedValues:
        addresses = _items(chain)
        address, hops = self._client(peer, addresses)
        listed = _items(prefixes)
        return _ForwardedValues(
            address=address if addresses else None,
            scheme=_lower(_in_form(_SCHEME, _at(_items(schemes), hops))),
            host=_lower(_in_form(_HOST, _at(_items(hosts), hops))),
            # Proxies do not agree on what a list of prefixes means.
            prefix=_in_form(_PREFIX, listed[0].rstrip("/")) if len(listed) == 1 else None,
        )

    def _forwarded(self, peer: str, lines: Lines) -> _ForwardedValues:
        # RFC 9110 §5.3: several lines of a field are one list, and a quote that one leaves open spoils all of it.
        elements = _parse_forwarded(", ".join(lines))
        if not elements:
            return _ForwardedValues()
        address, hops = self._client(peer, [element.get("for", "") for element in elements])
        element = elements[-hops]
        return _ForwardedValues(
            address=address,
            scheme=_lower(_in_form(_SCHEME, element.get("proto"))),
            host=_lower(_in_form(_HOST, element.get("host"))),
        )

    def _client(self, peer: str, chain: Sequence[str]) -> tuple[str, int]:
        """The last address from the right that is believed, and how many places from the right it stands."""
        believed, hops = peer, 0
        for text in reversed(chain):
            address = _parsed_node(text)
            # Whoever wrote this cannot be told, so neither can it be told who vouched for what stands further left.
            if address is None:
                break
            believed, hops = str(address), hops + 1
            if not self._trusts(believed):
                break
        # Where no address is believed, the last element is still the one that the peer itself has written.
        return believed, max(hops, 1)


def plain_address(text: str) -> str:
    """An address in its usual form: IPv4 as such, although it came in its IPv6 form."""
    # Sockets for both families show IPv4 peers as `::ffff:192.0.2.1`, which `is_loopback` of older Pythons denies to be
    # this machine; nothing else is worth parsing for each request.
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
    """An address with or without its port. What is `unknown` or obfuscated (RFC 7239 §6.3) is none."""
    match = _NODE.fullmatch(text)
    return None if match is None else _parsed_address(match["v4"] or match["v6"] or match["bare"])


def _items(lines: Lines) -> list[str]:
    """The members of a comma-separated field, over all its lines (RFC 9110 §5.3)."""
    return [item.strip(" \t") for line in lines for item in line.split(",")]


def _at(items: Sequence[str], hops: int) -> str | None:
    """The member that the proxy wrote to which the client spoke; a list that is shorter was not appended to."""
    return items[-min(hops, len(items))] if items else None


def _in_form(form: re.Pattern[str], text: str | None) -> str | None:
    return text if text is not None and form.fullmatch(text) else None


def _lower(text: str | None) -> str | None:
    return None if text is None else text.lower()


def _agreed(one: str | None, other: str | None) -> str | None:
    """Return the value that one family has alone, or that both have alike."""
    return (one or other) if one is None or other is None or one == other else None


def _parse_forwarded(field: str) -> Sequence[Mapping[str, str]]:
    """The elements of a `Forwarded` field (RFC 7239 §4); none if anything in it is wrong."""
    elements: list[dict[str, str]] = [{}]
    position = 0
    while position < len(field):
        match = _PAIR.match(field, position)
        # A parameter that comes twice in one element is one error more: two readers could take different ones.
        if match is None or (name := match[1].lower()) in elements[-1]:
            return []
        elements[-1][name] = _QUOTED_PAIR.sub(r"\1", match[2][1:-1]) if match[2].startswith('"') else match[2]
        position = match.end()
        if match[3] == ",":
            elements.append({})
    return elements if all(elements) else []
