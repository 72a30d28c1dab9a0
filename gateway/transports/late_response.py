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

from gateway.access.denial import NO_ENTRY, Entry, insufficient
from gateway.json_types import JsonObject
from gateway.protocol import jsonrpc
from gateway.protocol.exchange import Caller, Reply
from gateway.transports.accept import JSON, Accepted
from gateway.transports.event_stream import EventStream, Pace, encode_event, write_within

SOON_SECONDS: Final = 1.0
"""After this, a client that asked for event streams gets one, so that comments keep proxies from cutting it."""

_LARGE_BODY: Final = 64 * 1024
"""Bytes; what is smaller fits the socket's buffers, and waiting for its reader would be for nothing."""


class LateResponse:
    """An `Exchange` whose sender waits on the same connection."""

    __slots__ = ("_accepted", "_entry", "_headers", "_is_over", "_pace", "_request", "_whole", "caller", "stream")

    def __init__(  # noqa: PLR0913 - all that a response depends on
        self,
        request: web.Request,
        *,
        caller: Caller,
        accepted: Accepted,
        pace: Pace,
        headers: Mapping[str, str],
        entry: Entry = NO_ENTRY,
        preamble: bytes = b"",
    ) -> None:
        """Write nothing yet; `preamble` is what an event stream would begin with."""
        self._request = request
        self.caller: Final = caller
        self._accepted = accepted
        self._pace = pace
        self._headers = headers
        self._entry = entry
        self._is_over = False
        self._whole: Reply | None = None
        self.stream: Final = EventStream(request, pace=pace, headers=headers, preamble=preamble)
        """What it becomes, should it become one."""
        if accepted.names_event_stream:
            self.stream.open_after(SOON_SECONDS)

    @property
    def takes_events(self) -> bool:
        return self._accepted.event_stream

    async def send(self, notification: JsonObject) -> bool:
        """Send it ahead of the answer. A client that takes no event streams gets the answer alone."""
        await asyncio.sleep(0)  # a tool that reports in a tight loop must let others run
        if self._is_over or not self.takes_events:
            return False
        with suppress(ConnectionError):
            await self.stream.send(jsonrpc.encode(notification))
        return True

    async def close_stream(self, retry_ms: int | None) -> None:
        """Nothing: there are no event ids, so its client could not come back."""

    async def finish(self, reply: Reply) -> web.StreamResponse:
        """Write the answer: the stream's last event, or the whole response.

        Raises:
            ConnectionError: nobody is there to read it.
        """
        last = reply.body if self.settle(reply) else None
        return await self.end(None if last is None else encode_event(last))

    def settle(self, reply: Reply) -> bool:
        """Choose the answer's form, now that it is known: whether it is an event. What is none is left to `end`."""
        self._is_over = True
        wants_event = reply.body is not None and reply.status == 200 and not self._accepted.json
        if self.stream.is_open or wants_event:
            return True
        self.stream.abandon()
        self._whole = reply
        return False

    async def end(self, last: bytes | None) -> web.StreamResponse:
        """Write the answer that was settled whole, or end the stream with a last event.

        Raises:
            ConnectionError: nobody is there to read it.
        """
        if self._whole is None:
            return await self.stream.close(last)
        reply = self._whole
        response = whole_response(reply, headers={**self._headers, **_challenge(reply, self._entry)})
        if reply.body is not None and len(reply.body) > _LARGE_BODY:
            await response.prepare(self._request)
            await write_within(self._pace.patience, self._request, response.write_eof())
        return response

    def abandon(self) -> None:
        """The connection is gone, or about to be."""
        self._is_over = True
        self.stream.abandon()


def _challenge(reply: Reply, entry: Entry) -> Mapping[str, str]:
    """Tell a client that lacks a scope how to get it."""
    return insufficient(reply.missing_scopes).fields(entry) if reply.missing_scopes else {}


def whole_response(reply: Reply, *, headers: Mapping[str, str]) -> web.Response:
    """A response that is no stream."""
    if reply.body is None:
        # Nothing to say: a notification was taken, or the request was cancelled.
        return web.Response(status=202 if reply.status == 200 else reply.status, headers=headers)
    fields = {"Content-Type": JSON, **headers}
    if reply.retry_after is not None:
        fields["Retry-After"] = str(reply.retry_after)
    return web.Response(body=reply.body, status=reply.status, headers=fields)
