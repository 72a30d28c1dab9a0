"""What is said in answer to one request of a session. It outlives the connection that the request came on.

MCP 2025-11-25 basic/transports, "Sending Messages to the Server", 6: a disconnect is not a cancellation. So the call is
a task of its session and speaks to this object, to which a connection is attached while there is one. Messages that
nobody is there to take are dropped.
"""

import asyncio

from gateway.json_types import JsonObject
from gateway.protocol.exchange import Caller
from gateway.transports.late_response import LateResponse


class RequestStream:
    """An `Exchange` whose sender may leave and is still answered for."""

    __slots__ = ("_caller", "_response")

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._response: LateResponse | None = None

    @property
    def caller(self) -> Caller:
        return self._caller

    def attach(self, response: LateResponse) -> None:
        self._response = response

    def detach(self) -> None:
        self._response = None

    async def send(self, notification: JsonObject) -> None:
        if self._response is None:
            await asyncio.sleep(0)  # a tool that reports in a tight loop must let others run
        else:
            await self._response.send(notification)
