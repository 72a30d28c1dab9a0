"""The exchange: what a binding hands the protocol with each message, its sender and the way back."""

from collections.abc import Mapping
from enum import StrEnum
from ipaddress import ip_address
from typing import Final, Protocol

import msgspec

from gateway.access.credentials import Credential
from gateway.access.identity import ANONYMOUS, Identity, network_of
from gateway.access.subject import Subject
from gateway.json_types import JsonObject, empty
from gateway.protocol.session import Session

# RFC 9110 §7.6.3 requires `Via` from every proxy, including those that send none of the others.
FORWARDING_HEADERS: Final = frozenset(
    {"forwarded", "via", "x-real-ip", *(f"x-forwarded-{what}" for what in ("for", "host", "port", "prefix", "proto"))}
)
"""Header fields that proxies add, in lower case."""


class Binding(StrEnum):
    STDIO = "stdio"
    STREAMABLE_HTTP = "streamable-http"
    HTTP_SSE = "http+sse"
    MEMORY = "memory"
    """In process: tests and the command line."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of the transport about who sent a message. Never taken from the message itself."""

    binding: Binding
    identity: Identity = ANONYMOUS
    view: str | None = None
    """The view that the message was sent to; None: the whole."""
    address: str = ""
    """The client's, as far as trusted proxies tell."""
    headers: Mapping[str, str] = msgspec.field(default_factory=empty)
    """Header fields of the HTTP request, names in lower case; empty elsewhere."""
    access_token: Credential | None = None
    """The verified access token that identifies the sender, where it is one: for token exchange alone."""

    @property
    def principal(self) -> str | None:
        return self.identity.principal

    @property
    def realm(self) -> str:
        return self.identity.realm

    @property
    def subject(self) -> Subject:
        """The caller that requests to other services are authenticated as."""
        key = self.identity.subject_key
        if key is None and self._is_local:
            key = ""
        return Subject(key, self.access_token)

    @property
    def _is_local(self) -> bool:
        """Whether the client runs on this machine. Clients behind a reverse proxy do not count."""
        if self.binding in {Binding.STDIO, Binding.MEMORY}:
            return True
        try:
            is_loopback = ip_address(self.address).is_loopback
        except ValueError:
            return False
        return is_loopback and FORWARDING_HEADERS.isdisjoint(self.headers)

    @property
    def owner_key(self) -> str:
        """Whom caches and parked outputs belong to."""
        # Where nobody proves who they are, an address is all that tells callers apart.
        return self.identity.subject_key or f"anonymous@{self.address}"

    @property
    def rate_limit_key(self) -> str:
        """The key by which rates and permits are counted: of IPv6 the /64 network, the least that one customer gets."""
        return self.identity.subject_key or f"anonymous@{network_of(self.address)}"


class ViewEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions on which a binding lets callers into a view."""

    name: str
    scopes: frozenset[str]
    """All of these are required."""
    is_visible: bool
    """Whether callers who lack some are told so, and not that there is no such view."""


class Exchange(Protocol):
    """One message and the way back to its sender.

    The binding commits late: until the first `send` nothing is written, so that a fast error keeps its HTTP status and
    a plain answer stays `application/json`.
    """

    @property
    def caller(self) -> Caller: ...

    async def send(self, notification: JsonObject) -> bool:
        """Send a message that belongs to this one, before its answer.

        Returns:
            Whether the sender has it or may come back for it; False if it takes no such messages, or is gone for good.
        """

    async def close_stream(self, retry_ms: int | None) -> None:
        """Close the connection and let the sender come back for the rest after that time (2025-11-25, "polling").

        Does nothing where the binding or the revision knows no such thing.
        """


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a message: bytes of one JSON-RPC message, or None where there is nothing to say (HTTP 202)."""

    body: bytes | None
    status: int = 200
    """The HTTP status, should the binding still be free to choose it."""
    retry_after: int | None = None
    """Seconds, where a limit refused it."""
    missing_scopes: frozenset[str] = frozenset()
    """All that the operation needs, where the caller was refused for want of one (RFC 6750 §3.1)."""
    session: Session | None = None
    """The session that an `initialize` has opened."""
