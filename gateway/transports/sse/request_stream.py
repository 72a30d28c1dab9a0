"""The exchange of one request of a session. It outlives the connection that the request came on.

MCP 2025-11-25 basic/transports, "Sending Messages to the Server", 6: a disconnect is not a cancellation. So the call is
a task of its session and sends to this object. What no connection takes is kept for a client that resumes the stream; a
client that was told no event id cannot come back.
"""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final

from gateway.errors import ErrorCode, RpcError
from gateway.json_types import JsonObject
from gateway.protocol import results
from gateway.protocol.exchange import Caller, Reply
from gateway.transports.sse.deferred_response import DeferredResponse
from gateway.transports.sse.session_stream import SessionStream
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Batch, Request

_TOO_LARGE: Final = "The answer was lost with the connection: it is too large to be kept"


class RequestStream:
    """An `Exchange` whose sender may leave and is still answered for."""

    __slots__ = ("_caller", "_message", "_response", "_stream")

    def __init__(self, message: Request | Batch, *, caller: Caller, stream: SessionStream) -> None:
        self._message = message
        self._caller = caller
        self._stream = stream
        self._response: DeferredResponse | None = None

    @property
    def caller(self) -> Caller:
        return self._caller

    def connect(self, response: DeferredResponse) -> asyncio.Future[bytes | None]:
        """Let the request's own connection carry the stream; see `SessionStream.connect`."""
        self._response = response
        return self._stream.connect(response if response.takes_events else None)

    def disconnect(self, response: DeferredResponse) -> None:
        self._response = None
        self._stream.disconnect(response)

    async def send(self, notification: JsonObject) -> bool:
        await asyncio.sleep(0)  # a tool that reports in a tight loop must let others run
        # The event is kept already, for a client that resumes; the call goes on.
        with suppress(ConnectionError):
            return await self._stream.send_event(jsonrpc.encode(notification))
        return True

    async def close_stream(self, retry_ms: int | None) -> None:
        await self._stream.close_for_polling(retry_ms)

    @property
    def is_over(self) -> bool:
        """Whether the answer was given."""
        return self._stream.is_over

    async def answered(self, answer: Awaitable[Reply]) -> Reply:
        """Wait for the answer, and give it in the same turn of the event loop."""
        reply = await answer
        self.finish(reply)
        return reply

    def finish(self, reply: Reply) -> None:
        """Answer: at once where a connection is there, and for a client that resumes the stream."""
        is_event = self._response is None or self._response.choose_form(reply)
        self._stream.end(reply.body if is_event else None, stand_in=self._too_large)

    def _too_large(self) -> bytes:
        request_id = self._message.id if isinstance(self._message, Request) else None
        error = RpcError(ErrorCode.INTERNAL_ERROR, _TOO_LARGE)
        return results.error_reply(error, request_id=request_id, revision=None).body or b""


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
