"""A legacy session: what `initialize` agreed on, and what the client has set since. Opens and closes nothing."""

import secrets
from typing import Final

from gateway.json_types import JsonObject
from gateway.protocol.in_flight import InFlight
from gateway.protocol.outbox import Outbox

_ID_BYTES: Final = 24
"""192 bits: a session id must not be guessable (2025-11-25 basic/transports, "Session Management")."""


class Session:
    """One client of the legacy era: an `Mcp-Session-Id` over HTTP, the process over stdio."""

    __slots__ = (
        "__weakref__",
        "capabilities",
        "client_info",
        "id",
        "in_flight",
        "is_initialized",
        "log_level",
        "outbox",
        "principal",
        "revision",
        "subscriptions",
    )

    def __init__(
        self, *, revision: str, client_info: JsonObject, capabilities: JsonObject, principal: str | None
    ) -> None:
        self.id: Final = secrets.token_urlsafe(_ID_BYTES)
        self.revision: Final = revision
        self.client_info: Final = client_info
        self.capabilities: Final = capabilities
        self.principal: Final = principal
        self.is_initialized = False
        """Whether `notifications/initialized` has come."""
        self.log_level: str | None = None
        """What `logging/setLevel` asked for. Until then nothing is logged to the client."""
        self.subscriptions: frozenset[str] = frozenset()
        """URIs of `resources/subscribe`."""
        self.in_flight: Final = InFlight()
        self.outbox: Final = Outbox()
