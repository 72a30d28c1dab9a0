"""What a binding gives the protocol for each message: who sent it, and the way back to the sender."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from gateway.access.identity import ANYBODY, Identity, network_of
from gateway.json_types import JsonObject, empty


class Binding(StrEnum):
    STDIO = "stdio"
    STREAMABLE_HTTP = "streamable-http"
    HTTP_SSE = "http+sse"
    MEMORY = "memory"
    """In process: tests and the command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Facts of the transport about who sent a message. Never taken from the message itself."""

    binding: Binding
    identity: Identity = ANYBODY
    address: str = ""
    """The client's, as far as trusted proxies tell."""
    headers: Mapping[str, str] = field(default_factory=empty)
    """Header fields of the HTTP request, names in lower case; empty elsewhere."""

    @property
    def key(self) -> str:
        """Whom caches and parked outputs belong to."""
        return self.identity.owner or f"anonymous@{self.address}"

    @property
    def payer(self) -> str:
        """Whose calls rates and places count: of IPv6 the /64 network, which is the least that one customer gets."""
        return self.identity.owner or f"anonymous@{network_of(self.address)}"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to a message: bytes of one JSON-RPC message, or None where there is nothing to say (HTTP 202)."""

    body: bytes | None
    status: int = 200
    """The HTTP status, should the binding still be free to choose it."""
    retry_after: int | None = None
    """Seconds, where a limit refused it."""
    missing_scopes: frozenset[str] = frozenset()
    """All that the operation needs, where the caller was refused for want of one (RFC 6750 §3.1)."""
