"""host:port, as it is written in `listen.http`, `--http` and MCP_GATEWAY_HTTP."""

import re
from ipaddress import ip_address
from typing import Final, Self

import msgspec

EXPECTED: Final = "expected host:port such as 127.0.0.1:8000, [::1]:8000 or :8000 (every interface)"
_PATTERN: Final = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\s:/\[\]@]*)):(?P<port>[0-9]{1,5})")


class Address(msgspec.Struct, frozen=True):
    """An address to listen on. Port 0 takes a free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read host:port; an empty host is every interface.

        Raises:
            ValueError: it is not one; the text says what is expected.
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
        """Whether it is every interface."""
        try:
            return ip_address(self.host).is_unspecified
        except ValueError:
            return False

    @property
    def from_here(self) -> "Address":
        """The address by which this machine reaches it: every interface includes loopback."""
        return Address("::1" if ":" in self.host else "127.0.0.1", self.port) if self.is_wildcard else self

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


_HOST_AND_PORT: Final = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[^\s:@\[\]\\]+))(?::[0-9]{0,5})?")


def host_of(netloc: str) -> str:
    """The host in the authority of a URL, without brackets; empty where the whole is no host and port.

    `urlsplit` reads one in `[::1].example.com` too.
    """
    match = _HOST_AND_PORT.fullmatch(netloc.rpartition("@")[2])
    return "" if match is None else match["v6"] or match["name"]


def is_loopback_name(host: str) -> bool:
    """Whether a host, without brackets, is this machine and no other."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
