"""The client side of the HTTP+SSE transport (MCP 2024-11-05 basic/transports)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog
from yarl import URL

from gateway.access.identity import Subject
from gateway.json_types import JsonObject
from gateway.net.clients import Answer
from gateway.net.request import origin_of, parse_url
from gateway.upstreams.client.http_link import HttpChannel, read_body, refusal
from gateway.upstreams.client.link import INTERNAL_ERROR, Inbox, Pending, messages_at_end, messages_in
from gateway.upstreams.failures import BadAnswerError, ConnectionLostError, NotMcpError, UnreachableError, UpstreamError
from gateway.wire import jsonrpc
from gateway.wire.event_parser import Event, EventParser, EventTooLargeError
from gateway.wire.jsonrpc import Response

log: Final = structlog.get_logger(__name__)


class SseLink:
    transport = "sse"
    non_mcp_output = ""

    def __init__(self, channel: HttpChannel) -> None:
        self._channel: Final = channel
        self._pending: Final = Pending()
        self._reading: asyncio.Task[None]
        self._target: asyncio.Future[URL]
        self._inbox: Inbox
        self.closed: asyncio.Future[str]

    async def open(self, inbox: Inbox, *, subject: Subject | None) -> None:
        self._channel.subject = subject
        loop = asyncio.get_running_loop()
        self._inbox, self.closed, self._target = inbox, loop.create_future(), loop.create_future()
        self._reading = asyncio.create_task(self._read(), name="upstream stream")
        # MCP 2024-11-05 basic/transports: an `endpoint` event contains the URI for messages.
        await self._target

    async def request(self, message: JsonObject, fields: Mapping[str, str], *, subject: Subject | None) -> Response:
        # The response can arrive before the POST ends.
        with self._pending.expecting(message["id"]) as waiting:
            await self._post(message, fields, subject)
            return await waiting

    async def send(self, message: JsonObject, fields: Mapping[str, str]) -> None:
        self._pending.note_notification()
        await self._post(message, fields)

    async def _post(self, message: JsonObject, fields: Mapping[str, str], subject: Subject | None = None) -> None:
        if self.closed.done():
            raise ConnectionLostError(self.closed.result())
        body, url = jsonrpc.encode(message), await self._target
        all_fields = {"Content-Type": "application/json", **fields}
        async with self._channel.exchange("POST", fields=all_fields, body=body, url=url, subject=subject) as answer:
            if answer.status >= 400:
                raise refusal(answer, await read_body(answer), has_session=True)

    async def listen(self, fields: Callable[[], Mapping[str, str]], ping: Callable[[], Awaitable[object]]) -> None:
        pass

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        try:
            await self._stream()
            self._lost(ConnectionLostError("ended its stream"))
        except EventTooLargeError as error:
            self._lost(BadAnswerError(f"sent {error}"))
        except UpstreamError as error:
            self._lost(error)
        except asyncio.CancelledError:
            self._lost(ConnectionLostError("was closed"))
            raise
        except Exception:  # Boundary: calls must not wait forever after an internal error
            log.exception("reading the stream of an upstream failed")
            self._lost(ConnectionLostError(INTERNAL_ERROR))

    async def _stream(self) -> None:
        async with self._channel.exchange("GET", fields={"Accept": "text/event-stream"}) as answer:
            if answer.status != 200 or answer.media_type != "text/event-stream":
                raise refusal(answer, await read_body(answer), has_session=False)
            await self._events(answer)

    async def _events(self, answer: Answer) -> None:
        parser = EventParser()
        async for chunk in answer.content.iter_any():
            for event in parser.feed(chunk):
                if event.name == "endpoint":
                    self._endpoint(event)
                elif event.data:
                    self._pending.take(messages_in(event.data), self._inbox)
        self._pending.take(messages_at_end(parser), self._inbox)

    def _endpoint(self, event: Event) -> None:
        try:
            url = self._channel.url.join(parse_url(event.data.decode(errors="replace")))
        except ValueError as error:
            raise NotMcpError("sent an endpoint event with an invalid URL") from error
        # Each POST contains credentials.
        if origin_of(url) != origin_of(self._channel.url):
            raise NotMcpError("sent an endpoint event with a URL of a different origin")
        if not self._target.done():
            self._target.set_result(url)

    def _lost(self, error: Exception) -> None:
        if not self._target.done():
            unreachable = error if isinstance(error, UnreachableError) else UnreachableError(str(error))
            self._target.set_exception(unreachable)
            self._target.exception()  # marks the exception as retrieved
        if not self.closed.done():
            self.closed.set_result(str(error))
        self._pending.fail(error if isinstance(error, BadAnswerError) else ConnectionLostError(str(error)))
