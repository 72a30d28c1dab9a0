"""A legacy session: what `initialize` agreed on, and what its client has set since. Holds no connection."""

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Final

from gateway.access.identity import Identity
from gateway.json_types import JsonObject
from gateway.plugin import ListKind
from gateway.protocol.in_flight import InFlight
from gateway.protocol.outbox import Outbox
from gateway.wire.jsonrpc import Response

_ID_BYTES: Final = 24
"""192 bits: a session id must not be guessable (2025-11-25 basic/transports, "Session Management")."""


class Session:
    """One client of the legacy era: an `Mcp-Session-Id` over HTTP, the process over stdio."""

    __slots__ = (
        "__weakref__",
        "asks_as",
        "capabilities",
        "client_info",
        "created_at",
        "id",
        "identity",
        "in_flight",
        "is_initialized",
        "log_level",
        "on_end",
        "outbox",
        "pending_answers",
        "revision",
        "subscriptions",
        "view",
    )

    def __init__(
        self,
        *,
        revision: str,
        client_info: JsonObject,
        capabilities: JsonObject,
        identity: Identity,
        view: str | None = None,
    ) -> None:
        self.id = secrets.token_urlsafe(_ID_BYTES)
        """A name of its own; over Streamable HTTP an `Mcp-Session-Id` takes its place."""
        self.created_at: Final = time.time()
        """Unix time; of a session that another process opened, when this one took it over."""
        self.asks_as = "gateway"
        """The beginning of the ids of requests to the client; it names the process, where others serve the session."""
        self.revision: Final = revision
        self.client_info: Final = client_info
        self.capabilities: Final = capabilities
        self.view: Final = view
        """The view that it was opened at, and is good at; None: the whole."""
        self.identity = identity
        """Who it belongs to, with the scopes of the last credential that was shown for it."""
        self.is_initialized = False
        """Whether `notifications/initialized` has come."""
        self.log_level: str | None = None
        """What `logging/setLevel` asked for. Until then nothing is logged to the client."""
        self.subscriptions: frozenset[str] = frozenset()
        """URIs of `resources/subscribe`."""
        self.in_flight: Final = InFlight()
        self.pending_answers: Final[dict[str, asyncio.Future[Response]]] = {}
        """By request id, what the client was asked and has not answered."""
        self.outbox: Final = Outbox()
        self.on_end: Callable[[str], None] = lambda _: None
        """Called with its id when it ends."""

    @property
    def scopes(self) -> frozenset[str] | None:
        """The scopes of its client; None is everything."""
        return self.identity.scopes

    def restore(self, *, is_initialized: bool, log_level: str | None, subscriptions: frozenset[str]) -> None:
        """Continue with the state that another process has recorded."""
        self.is_initialized, self.log_level, self.subscriptions = is_initialized, log_level, subscriptions

    def takes(self, _kind: ListKind) -> bool:
        """Whether it is told of a list that changes: of each, once it is initialized."""
        return self.is_initialized

    def end(self) -> None:
        """End: its client has gone, or is not served any more."""
        self.outbox.close()
        self.on_end(self.id)

    def expect_answer(self) -> tuple[str, asyncio.Future[Response]]:
        """A new id for a request to the client, and what its answer will come as."""
        # Random, so that a late answer to another request is never taken for one to this, after a restart either.
        request_id = f"{self.asks_as}-{secrets.token_hex(8)}"
        answering: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.pending_answers[request_id] = answering
        return request_id, answering

    def forget_answer(self, request_id: str) -> None:
        self.pending_answers.pop(request_id, None)

    def take_answer(self, response: Response) -> None:
        """Hand the client's response to the call that waits for it; one that no call waits for came too late."""
        answering = self.pending_answers.get(response.id) if isinstance(response.id, str) else None
        # A client may answer twice, or just when the wait has been cancelled; a result can be set only once.
        if answering is not None and not answering.done():
            answering.set_result(response)
