"""The response to one POST, committed as late as can be.

Why late: until something is written, a fast error keeps its HTTP status and a plain answer stays `application/json`,
which every client and proxy handles best. It becomes an event stream when a message has to go out before the answer, or
when the answer takes so long that the connection would look dead.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from aiohttp import web

from gateway.json_types import JsonObject
from gateway.protocol import jsonrpc
from gateway.protocol.exchange import Caller, Reply
from gateway.transports.accept import JSON, Accepted
from gateway.transports.event_stream import EventStream, Pace, write_within

SOON_SECONDS: Final = 1.0
"""After this, a client that asked for event streams gets one, so that comments keep proxies from cutting it."""

_LARGE_BODY: Final = 64 * 1024
"""Bytes; what is smaller fits the socket's buffers, and waiting for its reader would be for nothing."""


class LateResponse:
    """An `Exchange` whose sender waits on the same connection."""

    __slots__ = ("_accepted", "_caller", "_headers", "_is_over", "_pace", "_request", "_stream")

    def __init__(
        self, request: web.Request, *, caller: Caller, accepted: Accepted, pace: Pace, headers: Mapping[str, str]
    ) -> None:
        self._request = request
        self._caller = caller
        self._accepted = accepted
        self._pace = pace
        self._headers = headers
        self._is_over = False
        self._stream = EventStream(request, pace=pace, headers=headers)
        if accepted.names_event_stream:
            self._stream.open_after(SOON_SECONDS)

    @property
    def caller(self) -> Caller:
        return self._caller

    async def send(self, notification: JsonObject) -> None:
        """Send it ahead of the answer. A client that takes no event streams gets the answer alone."""
        await asyncio.sleep(0)  # a tool that reports in a tight loop must let others run
        if self._is_over or not self._accepted.event_stream:
            return
        with suppress(ConnectionError):
            await self._stream.send(jsonrpc.encode(notification))

    async def finish(self, reply: Reply) -> web.StreamResponse:
        """Write the answer: the stream's last event, or the whole response.

        Raises:
            ConnectionError: nobody is there to read it.
        """
        self._is_over = True
        wants_event = reply.body is not None and reply.status == 200 and not self._accepted.json
        if self._stream.is_open or wants_event:
            return await self._stream.close(reply.body)
        self._stream.abandon()
        response = whole_response(reply, headers=self._headers)
        if reply.body is not None and len(reply.body) > _LARGE_BODY:
            await response.prepare(self._request)
            await write_within(self._pace.patience, self._request, response.write_eof())
        return response

    def abandon(self) -> None:
        """The connection is gone, or about to be."""
        self._is_over = True
        self._stream.abandon()


def whole_response(reply: Reply, *, headers: Mapping[str, str]) -> web.Response:
    """A response that is no stream."""
    if reply.body is None:
        # Nothing to say: a notification was taken, or the request was cancelled.
        return web.Response(status=202 if reply.status == 200 else reply.status, headers=headers)
    return web.Response(body=reply.body, status=reply.status, headers={"Content-Type": JSON, **headers})
