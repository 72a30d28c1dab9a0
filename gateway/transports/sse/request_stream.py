"""The exchange of one request of a session. It outlives the connection that the request came on.

MCP 2025-11-25 basic/transports, "Sending Messages to the Server", 6: a disconnect is not a cancellation. So the call is
a task of its session and sends to this object. What no connection takes is kept for a client that resumes the stream; a
client that was told no event id cannot come back. So a stream is opened with its first event: most answers need none.
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

_TOO_LARGE: Final = "The answer was lost with the connection: it is too large to be kept"


class RequestStream:
    """An `Exchange` whose sender may leave and is still answered for."""

    __slots__ = ("_ending", "_message", "_response", "_store", "_stream", "caller", "is_over")

    def __init__(self, message: Request | Batch, *, caller: Caller, store: EventStore) -> None:
        """Open no stream yet; `store` opens it."""
        self.caller: Final = caller
        self.is_over = False
        """Whether the answer was given."""
        self._message: Final = message
        self._store: Final = store
        self._stream: SessionStream | None = None
        self._response: DeferredResponse | None = None
        self._ending: asyncio.Future[bytes | None] | None = None

    def connect(self, response: DeferredResponse) -> asyncio.Future[bytes | None]:
        """Let the request's own connection carry what is said; see `SessionStream.connect`."""
        self._response = response
        self._ending = ending = asyncio.get_running_loop().create_future()
        return ending

    def disconnect(self, response: DeferredResponse) -> None:
        self._response = self._ending = None  # its result is the answer, which this would hold on to
        if self._stream is not None:
            self._stream.disconnect(response)

    def preamble(self) -> bytes:
        """The first event of its stream, which is one from now on; see `SessionStream.preamble`."""
        return self._opened().preamble

    async def send(self, notification: JsonObject) -> bool:
        await asyncio.sleep(0)  # a tool that reports in a tight loop must let others run
        # The event is kept already, for a client that resumes; the call goes on.
        with suppress(ConnectionError):
            return await self._opened().send_event(jsonrpc.encode(notification))
        return True

    async def close_stream(self, retry_ms: int | None) -> None:
        await self._opened().close_for_polling(retry_ms)

    def finish(self, reply: Reply) -> None:
        """Answer: at once where a connection is there, and for a client that resumes the stream."""
        self.is_over = True
        if self._response is None or self._response.choose_form(reply):
            self._opened().end(reply.body, stand_in=self._too_large)
        elif self._stream is not None:
            self._stream.end(None, stand_in=self._too_large)
        elif self._ending is not None and not self._ending.done():  # its handler may have been cancelled a moment ago
            self._ending.set_result(None)

    def _opened(self) -> SessionStream:
        """The stream, carried by the request's own connection as long as that is there and takes events."""
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
    """An `Exchange` for a message that nothing is said about before its answer."""

    __slots__ = ("caller",)

    def __init__(self, caller: Caller) -> None:
        self.caller: Final = caller

    async def send(self, notification: JsonObject) -> bool:
        del notification
        return False

    async def close_stream(self, retry_ms: int | None) -> None:
        """There is none."""
