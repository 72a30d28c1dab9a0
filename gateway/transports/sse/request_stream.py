"""The exchange of a session's request, which outlives the request's connection.

A disconnect is not a cancellation (2025-11-25 basic/transports, "Sending Messages to the Server", 6). Undelivered
events are stored for a client that resumes. Most responses need no stream, so it is opened with the first event.
"""

import asyncio
from contextlib import suppress
from typing import Final

from gateway.errors import ErrorCode, RpcError
from gateway.json_types import JsonObject
from gateway.protocol import results
from gateway.protocol.exchange import Caller, Reply
from gateway.transports.sse.deferred_response import DeferredResponse
from gateway.transports.sse.event_store import EventStore
from gateway.transports.sse.session_stream import SessionStream
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Batch, Request, RequestId

_TOO_LARGE: Final = "The response was lost with the connection: it is too large to keep"


class RequestStream:
    """An `Exchange` whose client can disconnect and resume."""

    __slots__ = ("_ending", "_message", "_response", "_store", "_stream", "caller", "is_over")

    def __init__(self, message: Request | Batch, *, caller: Caller, store: EventStore) -> None:
        """`store` opens the stream when it is needed."""
        self.caller: Final = caller
        self.is_over = False
        """Whether the response was sent."""
        self._message: Final = message
        self._store: Final = store
        self._stream: SessionStream | None = None
        self._response: DeferredResponse | None = None
        self._ending: asyncio.Future[bytes | None] | None = None

    def connect(self, response: DeferredResponse) -> asyncio.Future[bytes | None]:
        """Attach the request's own connection. See `SessionStream.connect`."""
        self._response = response
        self._ending = ending = asyncio.get_running_loop().create_future()
        return ending

    def disconnect(self, response: DeferredResponse) -> None:
        self._response = self._ending = None  # Free the response in its result.
        if self._stream is not None:
            self._stream.disconnect(response)

    def preamble(self) -> bytes:
        """Open the stream and return its priming event. See `SessionStream.preamble`."""
        return self._opened().preamble

    async def send(self, notification: JsonObject) -> bool:
        await asyncio.sleep(0)  # Let other tasks run even if a tool sends progress in a tight loop.
        # The event is already stored for a client that resumes.
        with suppress(ConnectionError):
            return await self._opened().send_event(jsonrpc.encode(notification))
        return True

    async def close_stream(self, retry_ms: int | None) -> None:
        await self._opened().close_for_polling(retry_ms)

    def finish(self, reply: Reply) -> None:
        """Send the response to the connection, or store it for a client that resumes."""
        self.is_over = True
        if self._response is None or self._response.choose_form(reply):
            self._opened().end(reply.body, stand_in=self._too_large)
        elif self._stream is not None:
            self._stream.end(None, stand_in=self._too_large)
        elif self._ending is not None and not self._ending.done():  # The handler could have been cancelled.
            self._ending.set_result(None)

    def _opened(self) -> SessionStream:
        """Return the stream, attached to the request's connection if that accepts events."""
        if self._stream is None:
            response = self._response
            self._stream = self._store.open(answers_request=True, request_id=self._request_id)
            if response is not None and self._ending is not None:
                self._stream.connect(response if response.takes_events else None, ending=self._ending)
        return self._stream

    @property
    def _request_id(self) -> RequestId | None:
        return self._message.id if isinstance(self._message, Request) else None

    def _too_large(self) -> bytes:
        error = RpcError(ErrorCode.INTERNAL_ERROR, _TOO_LARGE)
        return results.error_reply(error, request_id=self._request_id, revision=None).body or b""


class NoStream:
    """An `Exchange` that drops notifications."""

    __slots__ = ("caller",)

    def __init__(self, caller: Caller) -> None:
        self.caller: Final = caller

    async def send(self, notification: JsonObject) -> bool:
        del notification
        return False

    async def close_stream(self, retry_ms: int | None) -> None: ...
