"""What is said in answer to one request of a session. It outlives the connection that the request came on.

MCP 2025-11-25 basic/transports, "Sending Messages to the Server", 6: a disconnect is not a cancellation. So the call is
a task of its session and speaks to this object. What nobody is there to take waits for whoever comes back for it; a
client that was told no event id cannot come back.
"""

import asyncio
from contextlib import suppress
from typing import Final

from gateway.errors import ErrorCode, RpcError
from gateway.json_types import JsonObject
from gateway.protocol import jsonrpc, results
from gateway.protocol.exchange import Caller, Reply
from gateway.protocol.jsonrpc import Batch, Request
from gateway.transports.late_response import LateResponse
from gateway.transports.streamable_http.session_stream import SessionStream

_TOO_LARGE: Final = "The answer was lost with the connection: it is too large to be kept"


class RequestStream:
    """An `Exchange` whose sender may leave and is still answered for."""

    __slots__ = ("_caller", "_message", "_response", "_stream")

    def __init__(self, message: Request | Batch, *, caller: Caller, stream: SessionStream) -> None:
        self._message = message
        self._caller = caller
        self._stream = stream
        self._response: LateResponse | None = None

    @property
    def caller(self) -> Caller:
        return self._caller

    def attach(self, response: LateResponse) -> asyncio.Future[bytes | None]:
        """Let the request's own connection carry the stream; see `SessionStream.connect`."""
        self._response = response
        return self._stream.connect(response.stream if response.takes_events else None)

    def detach(self, response: LateResponse) -> None:
        self._response = None
        self._stream.disconnect(response.stream)

    async def send(self, notification: JsonObject) -> bool:
        await asyncio.sleep(0)  # a tool that reports in a tight loop must let others run
        with suppress(ConnectionError):
            return await self._stream.say(jsonrpc.encode(notification))
        return True

    async def close_stream(self, retry_ms: int | None) -> None:
        await self._stream.hang_up(retry_ms)

    def finish(self, reply: Reply) -> None:
        """Answer: at once where a connection is there, and for whoever comes back."""
        is_event = self._response is None or self._response.settle(reply)
        self._stream.end(reply.body if is_event else None, stand_in=self._apology)

    def _apology(self) -> bytes:
        request_id = self._message.id if isinstance(self._message, Request) else None
        error = RpcError(ErrorCode.INTERNAL_ERROR, _TOO_LARGE)
        return results.error_reply(error, request_id=request_id, revision=None).body or b""


class Unheard:
    """An `Exchange` for a message that nothing is said about before its answer."""

    __slots__ = ("caller",)

    def __init__(self, caller: Caller) -> None:
        self.caller: Final = caller

    async def send(self, notification: JsonObject) -> bool:
        del notification
        return False

    async def close_stream(self, retry_ms: int | None) -> None:
        """There is none."""
