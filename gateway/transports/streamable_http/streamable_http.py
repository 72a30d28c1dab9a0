"""Streamable HTTP: one path for both eras (2025-03-26 … 2025-11-25 basic/transports, 2026-07-28 streamable-http).

The era is decided by each POST's body and version header, never by what came before on the connection. A modern request
lives as long as its connection: going away cancels it. A legacy one belongs to its session: see `session_endpoint`.
"""

import asyncio
from typing import Final

from aiohttp import web

from gateway.errors import RpcError
from gateway.protocol import jsonrpc
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.envelope import is_modern
from gateway.protocol.jsonrpc import Batch, Notification, Request, Response
from gateway.protocol.last_words import LastWords
from gateway.protocol.versions import V2026_07_28
from gateway.transports.admissions import Admissions
from gateway.transports.body import read_body
from gateway.transports.guard import ALLOWED_METHODS
from gateway.transports.incoming import NOT_ACCEPTABLE, Bounds, Incoming
from gateway.transports.late_response import whole_response
from gateway.transports.ration import Ration
from gateway.transports.refusal import LEAVING, Refusal
from gateway.transports.streamable_http.session_endpoint import SessionEndpoint
from gateway.transports.streamable_http.sessions import Sessions
from gateway.transports.visit import Task, Visit

_LISTEN: Final = "subscriptions/listen"
"""The one request whose answer is a stream by nature."""
_OPENERS: Final = frozenset({_LISTEN, "initialize"})
"""Requests that begin something which would have to be ended again."""
_FAREWELL_SECONDS: Final = 2.0
"""How long cancelled calls may take to end."""
_NOT_ALLOWED: Final = Refusal(status=405, message="Method not allowed", headers={"Allow": ALLOWED_METHODS})


class StreamableHttp:
    """The MCP endpoint."""

    def __init__(
        self, *, dispatcher: Dispatcher, sessions: Sessions, streams: Ration, admissions: Admissions, bounds: Bounds
    ) -> None:
        self._dispatcher: Final = dispatcher
        self._sessions: Final = sessions
        self._streams: Final = streams
        self._admissions: Final = admissions
        self._bounds: Final = bounds
        self._legacy: Final = SessionEndpoint(
            dispatcher=dispatcher, sessions=sessions, streams=streams, admissions=admissions, pace=bounds.pace
        )
        self._inside: Final[set[Task]] = set()
        """Handlers of all requests."""
        self._modern: Final[set[Task]] = set()
        """Those of modern requests that are not answered yet."""
        self._last_words: Final = LastWords()
        self._is_leaving = False

    async def handle(self, visit: Visit) -> web.StreamResponse:
        """Answer one request that passed the front door."""
        incoming = Incoming.read(visit)
        task = visit.task
        self._inside.add(task)
        self._admissions.begin(task, visit.identity)
        try:
            match visit.request.method:
                case "POST":
                    return await self._post(incoming)
                case "GET" if self._is_leaving:
                    return incoming.refuse(LEAVING)
                case "GET":
                    return await self._legacy.get(incoming)
                case "DELETE":
                    return await self._legacy.delete(incoming)
                case _:
                    return incoming.refuse(_NOT_ALLOWED)
        finally:
            self._admissions.end(task)
            self._inside.discard(task)

    def begin_leaving(self) -> None:
        """Open no sessions and no streams any more. Calls are answered as before."""
        self._is_leaving = True

    async def drain(self, seconds: float) -> None:
        """End the streams, and let calls finish for so long, those that still come too; then cut the modern ones off.

        Those of sessions end with their sessions.
        """
        self.begin_leaving()
        self._sessions.end_streams()
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (busy := self._inside | self._sessions.running) and (left := end - loop.time()) > 0:
            await asyncio.wait(busy, timeout=left)
        self._last_words.begin()
        for task in self._modern:
            task.cancel()
        if self._modern:
            await asyncio.wait(self._inside, timeout=_FAREWELL_SECONDS)

    async def _post(self, incoming: Incoming) -> web.StreamResponse:
        """Answer a message.

        1. some media type of ours is accepted: 406
        2. the body can be read: see `read_body`
        3. it is JSON-RPC: 400
        4. while the daemon stops, no session and no subscription begins: 503
        5. it is modern: see `Dispatcher.answer_modern`
        6. it is legacy: see `SessionEndpoint.post`
        """
        if not (incoming.accepted.json or incoming.accepted.event_stream):
            return incoming.refuse(NOT_ACCEPTABLE)
        body = await read_body(incoming.request, limit=self._bounds.max_body, seconds=self._bounds.receive_seconds)
        if isinstance(body, Refusal):
            return incoming.refuse(body)
        try:
            message = jsonrpc.decode(body, max_depth=self._bounds.max_depth)
        except RpcError as error:
            return whole_response(self._dispatcher.reject(error), headers=incoming.headers)
        if self._is_leaving and isinstance(message, Request) and message.method in _OPENERS:
            return incoming.refuse(LEAVING, message)
        if not isinstance(message, Batch) and is_modern(message, version_header=incoming.version):
            return await self._post_modern(message, incoming)
        return await self._legacy.post(message, incoming)

    async def _post_modern(self, message: Request | Notification | Response, incoming: Incoming) -> web.StreamResponse:
        if not (isinstance(message, Request) and message.method == _LISTEN):
            return await self._answer_modern(message, incoming)
        if not incoming.accepted.event_stream:
            return incoming.refuse(NOT_ACCEPTABLE, message)
        if (refusal := self._streams.refusal_of(incoming.caller.payer)) is not None:
            return incoming.refuse(refusal, message)
        with (
            self._streams.one(incoming.caller.payer),
            self._admissions.stream(incoming.task, incoming.caller.identity),
        ):
            return await self._answer_modern(message, incoming)

    async def _answer_modern(
        self, message: Request | Notification | Response, incoming: Incoming
    ) -> web.StreamResponse:
        response, task = incoming.late_response(self._bounds.pace), incoming.task
        self._modern.add(task)
        try:
            answering = self._dispatcher.answer_modern(message, response)
            reply = await self._last_words.or_apology(answering, message, revision=V2026_07_28)
            self._modern.discard(task)
            return await response.finish(reply)
        finally:
            self._modern.discard(task)
            response.abandon()
