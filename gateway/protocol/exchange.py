from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from ipaddress import ip_address
from typing import Final, Protocol

import msgspec

from gateway.access.identity import ANONYMOUS, OPERATORS, Credential, Identity, Subject, network_of
from gateway.json_types import JsonObject, empty
from gateway.protocol.session import Session

# RFC 9110 §7.6.3 requires `Via` from every proxy.
_FORWARDING_HEADERS: Final = ("forwarded", "via", "x-real-ip", "x-forwarded-")
"""The starts of the names of header fields that reverse proxies send."""


class Binding(StrEnum):
    STDIO = "stdio"
    STREAMABLE_HTTP = "streamable-http"
    HTTP_SSE = "http+sse"
    MEMORY = "memory"
    """A client in the same process, for tests and the command line."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    binding: Binding
    identity: Identity = ANONYMOUS
    view: str | None = None
    address: str = ""
    """The client's address. Behind a trusted proxy, this is the address that the proxy reports."""
    headers: Mapping[str, str] = msgspec.field(default_factory=empty)
    """Header fields of the HTTP request, with lower-case names."""
    access_token: Credential | None = None
    """The verified access token, for token exchange."""
    is_proxied: bool = False
    """Whether the request came through a reverse proxy, even if `headers` are missing."""

    @property
    def principal(self) -> str | None:
        return self.identity.principal

    @property
    def realm(self) -> str:
        return self.identity.realm

    @property
    def subject(self) -> Subject:
        """The user whose credentials authenticate requests to other services."""
        key = self.identity.subject_key
        if key is None and self.is_local:
            key = ""
        return Subject(key, self.access_token, issuer=self.identity.realm, is_operator=self.identity.holds(OPERATORS))

    @property
    def is_local(self) -> bool:
        """Whether the client runs on this machine and does not connect through a reverse proxy."""
        if self.binding in {Binding.STDIO, Binding.MEMORY}:
            return True
        try:
            is_loopback = ip_address(self.address).is_loopback
        except ValueError:
            return False
        return (
            is_loopback
            and not self.is_proxied
            and not any(name.startswith(_FORWARDING_HEADERS) for name in self.headers)
        )

    @property
    def owner_key(self) -> str:
        """Identifies the owner of cached results and stored outputs: the caller, or the address if anonymous."""
        return self.identity.subject_key or f"anonymous@{self.address}"

    @property
    def rate_limit_key(self) -> str:
        """Identifies the caller in limits. An IPv6 /64 is one anonymous caller, because providers assign whole /64s."""
        return self.identity.subject_key or f"anonymous@{network_of(self.address)}"


class Exchange(Protocol):
    """The sender of a message, and a channel for messages to this sender.

    Over HTTP, nothing is written before the first `send`. An error can therefore still set the HTTP status, and a
    response without earlier messages is sent as `application/json`.
    """

    @property
    def caller(self) -> Caller: ...

    async def send(self, notification: JsonObject) -> bool:
        """Send a message to the client before the response. Return False if the message can never be delivered."""

    async def close_stream(self, retry_ms: int | None) -> None:
        """Close the connection if the client can reconnect after `retry_ms` milliseconds (2025-11-25, "polling")."""


async def _drop(_notification: JsonObject) -> bool:
    return False


class ChannelExchange(msgspec.Struct, frozen=True, kw_only=True):
    """An `Exchange` that sends messages through `deliver`. Without `deliver`, messages are dropped."""

    caller: Caller
    deliver: Callable[[JsonObject], Awaitable[bool]] = _drop

    async def send(self, notification: JsonObject) -> bool:
        return await self.deliver(notification)

    async def close_stream(self, retry_ms: int | None) -> None: ...


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to a message. `body` is an encoded JSON-RPC message, or None if there is no response."""

    body: bytes | None
    status: int = 200
    """The HTTP status, which is not used if a stream has already started."""
    retry_after: int | None = None
    missing_scopes: frozenset[str] = frozenset()
    """The scopes that the request requires, if the caller lacks any of these scopes (RFC 6750 §3.1)."""
    session: Session | None = None
    """The session that `initialize` has opened."""
