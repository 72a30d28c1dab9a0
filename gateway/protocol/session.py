"""Implements the sessions of legacy clients, independent of the transport."""

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine
from typing import Final, TypeVar

from gateway.access.identity import Identity
from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json, JsonObject
from gateway.plugin import ListKind
from gateway.protocol.outbox import Outbox
from gateway.wire.jsonrpc import RequestId, Response

_ID_BYTES: Final = 24
"""192 bits, because session ids must not be guessable (MCP 2025-11-25 basic/transports, "Session Management")."""


class Session:
    """The session of a legacy client: over HTTP, one `Mcp-Session-Id`, and over stdio, the whole process."""

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
        """A random id. Streamable HTTP replaces this id with the `Mcp-Session-Id`."""
        self.created_at: Final = time.time()
        self.asks_as = "gateway"
        """The prefix of request ids. The prefix contains the name of the process if replicas share the session."""
        self.revision: Final = revision
        self.client_info: Final = client_info
        self.capabilities: Final = capabilities
        self.view: Final = view
        self.identity = identity
        """The session's owner, with the scopes of the owner's last credential."""
        self.is_initialized = False
        self.log_level: str | None = None
        """The level that `logging/setLevel` has set. While the level is None, no log messages are sent."""
        self.subscriptions: frozenset[str] = frozenset()
        self.in_flight: Final = InFlight()
        self.pending_answers: Final[dict[str, asyncio.Future[Response]]] = {}
        self.outbox: Final = Outbox()
        self._end_callbacks: Final[list[Callable[[str], None]]] = []

    @property
    def scopes(self) -> frozenset[str] | None:
        return self.identity.scopes

    def restore(self, *, is_initialized: bool, log_level: str | None, subscriptions: frozenset[str]) -> None:
        self.is_initialized, self.log_level, self.subscriptions = is_initialized, log_level, subscriptions

    def rename(self, session_id: str) -> None:
        self.id = session_id

    def share(self, replica: str) -> None:
        self.asks_as = f"{self.asks_as}-{replica}"

    def initialize(self) -> None:
        self.is_initialized = True

    def identify(self, identity: Identity) -> None:
        self.identity = identity

    def set_log_level(self, level: str) -> None:
        self.log_level = level

    def watch(self, uris: frozenset[str]) -> None:
        self.subscriptions = uris

    def takes(self, _kind: ListKind) -> bool:
        return self.is_initialized

    def add_end_callback(self, callback: Callable[[str], None]) -> None:
        self._end_callbacks.append(callback)

    def end(self) -> None:
        self.outbox.close()
        for callback in self._end_callbacks:
            callback(self.id)

    def expect_answer(self) -> tuple[str, asyncio.Future[Response]]:
        # The id is random, so that a late response never matches a later request.
        request_id = f"{self.asks_as}-{secrets.token_hex(8)}"
        answering: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.pending_answers[request_id] = answering
        return request_id, answering

    def forget_answer(self, request_id: str) -> None:
        self.pending_answers.pop(request_id, None)

    def take_answer(self, response: Response) -> None:
        """Pass a response to the call that waits for this response. Ignore late responses."""
        answering = self.pending_answers.get(response.id) if isinstance(response.id, str) else None
        # The client may respond twice, or after the wait was cancelled.
        if answering is not None and not answering.done():
            answering.set_result(response)


T = TypeVar("T")


class InFlight:
    __slots__ = ("_cancelled", "_tasks")

    def __init__(self) -> None:
        self._tasks: dict[RequestId, asyncio.Task[Json]] = {}
        self._cancelled: set[RequestId] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    async def run(self, request_id: RequestId, answer: Coroutine[Json, Json, T]) -> T | None:
        """Await `answer`. Return None if the request is cancelled. Raise RpcError (-32600) if the id is in use."""
        task = asyncio.current_task()
        if task is None or request_id in self._tasks:
            # Close the coroutine, because Python warns about coroutines that are never awaited.
            answer.close()
            raise RpcError(ErrorCode.INVALID_REQUEST, "A request with this id is already being served")
        self._tasks[request_id] = task
        try:
            answered = await answer
        except asyncio.CancelledError:
            if not self._was_cancelled(request_id, task):
                raise
            return None
        else:
            # The request may have been cancelled after its last await.
            return None if self._cancelled and self._was_cancelled(request_id, task) else answered
        finally:
            self._tasks.pop(request_id, None)
            self._cancelled.discard(request_id)

    def __contains__(self, request_id: Json) -> bool:
        return isinstance(request_id, str | int) and request_id in self._tasks

    def cancel(self, request_id: Json) -> None:
        if not isinstance(request_id, str | int) or isinstance(request_id, bool):
            return  # a boolean would match a number, because `True == 1`
        task = self._tasks.get(request_id)
        if task is not None and request_id not in self._cancelled:
            self._cancelled.add(request_id)
            task.cancel()

    def _was_cancelled(self, request_id: RequestId, task: asyncio.Task[Json]) -> bool:
        """Return whether the client has cancelled the request, and nothing else has cancelled the task."""
        return request_id in self._cancelled and task.uncancel() == 0
