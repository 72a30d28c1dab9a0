"""The exchange: the sender of a message, and the means to send messages before the response."""

from collections.abc import Mapping
from enum import StrEnum
from ipaddress import ip_address
from typing import Final, Protocol

import msgspec

from gateway.access.credentials import Credential
from gateway.access.identity import ANONYMOUS, OPERATORS, Identity, network_of
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
    """The sender of a message, from the transport rather than from the message."""

    binding: Binding
    identity: Identity = ANONYMOUS
    view: str | None = None
    """The view of the endpoint; None for the whole catalog."""
    address: str = ""
    """The client's address, which trusted proxies may report."""
    headers: Mapping[str, str] = msgspec.field(default_factory=empty)
    """Header fields of the HTTP request, names in lower case; empty elsewhere."""
    access_token: Credential | None = None
    """The verified access token of the sender, if any. Only for token exchange."""

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
        return Subject(key, self.access_token, is_operator=self.identity.holds(OPERATORS))

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
        """The owner of cached outcomes and stored outputs. Without authentication, an address identifies the caller."""
        return self.identity.subject_key or f"anonymous@{self.address}"

    @property
    def rate_limit_key(self) -> str:
        """The key of rate limits and permits. For IPv6 this is the /64 network, the smallest that a customer gets."""
        return self.identity.subject_key or f"anonymous@{network_of(self.address)}"


class ViewEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The access rules of a view."""

    name: str
    scopes: frozenset[str]
    is_visible: bool
    """Whether callers without the scopes get 403 rather than 404."""


class Exchange(Protocol):
    """One message, and the means to send messages to its sender.

    Over HTTP nothing is written before the first `send`, so that an error can have an HTTP status, and a single
    response is `application/json`.
    """

    @property
    def caller(self) -> Caller: ...

    async def send(self, notification: JsonObject) -> bool:
        """Send a message before the response. Return False if the sender cannot receive it, even after reconnecting."""

    async def close_stream(self, retry_ms: int | None) -> None:
        """Close the connection, and let the sender reconnect after this time (2025-11-25, "polling"), if possible."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to a message: an encoded JSON-RPC message, or None (HTTP 202)."""

    body: bytes | None
    status: int = 200
    """The HTTP status, if nothing was written yet."""
    retry_after: int | None = None
    """Seconds, if a limit refused the request."""
    missing_scopes: frozenset[str] = frozenset()
    """The required scopes, if the caller lacks one (RFC 6750 §3.1)."""
    session: Session | None = None
    """The session that `initialize` has opened."""
