"""Streamable HTTP: one path for both eras (2025-03-26 … 2025-11-25 basic/transports, 2026-07-28 streamable-http).

The era is decided by each POST's body and version header, never by what came before on the connection. A modern request
lives as long as its connection: going away cancels it. A legacy one belongs to its session: see `session_endpoint`.
"""

import asyncio
from typing import Final

from aiohttp import web

from gateway.errors import RpcError
from gateway.json_types import Json
from gateway.protocol import jsonrpc
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.envelope import is_modern
from gateway.protocol.jsonrpc import Batch, Notification, Request, Response
from gateway.transports.admissions import Admissions
from gateway.transports.body import read_body
from gateway.transports.guard import ALLOWED_METHODS, Refusal
from gateway.transports.incoming import NOT_ACCEPTABLE, Bounds, Incoming
from gateway.transports.late_response import whole_response
from gateway.transports.session_endpoint import SessionEndpoint
from gateway.transports.sessions import Sessions
from gateway.transports.streams import Streams
from gateway.transports.visit import Visit

_LISTEN: Final = "subscriptions/listen"
"""The one request whose answer is a stream by nature."""
_DRAINING: Final = Refusal(status=503, message="The server is about to stop", headers={"Connection": "close"})
_NOT_ALLOWED: Final = Refusal(status=405, message="Method not allowed", headers={"Allow": ALLOWED_METHODS})


class StreamableHttp:
    """The MCP endpoint."""

    def __init__(
        self, *, dispatcher: Dispatcher, sessions: Sessions, streams: Streams, admissions: Admissions, bounds: Bounds
    ) -> None:
        self._dispatcher: Final = dispatcher
        self._sessions: Final = sessions
        self._streams: Final = streams
        self._admissions: Final = admissions
        self._bounds: Final = bounds
        self._legacy: Final = SessionEndpoint(
            dispatcher=dispatcher, sessions=sessions, streams=streams, admissions=admissions, pace=bounds.pace
        )
        self._running: Final[set[asyncio.Task[Json]]] = set()
        """Handlers of modern requests."""
        self._is_draining = False

    async def handle(self, visit: Visit) -> web.StreamResponse:
        """Answer one request that passed the front door."""
        incoming = Incoming.read(visit)
        match visit.request.method:
            case "POST":
                return await self._post(incoming)
            case "GET" if self._is_draining:
                return incoming.refuse(_DRAINING)
            case "GET":
                return await self._legacy.get(incoming)
            case "DELETE":
                return await self._legacy.delete(incoming)
            case _:
                return incoming.refuse(_NOT_ALLOWED)

    async def drain(self, seconds: float) -> None:
        """Begin nothing new, give the calls in flight this long to end by themselves, then cancel the modern ones."""
        self._is_draining = True
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sessions.drain(seconds))
            if self._running:
                await asyncio.wait(self._running, timeout=seconds)
        for task in self._running:
            task.cancel()

    async def _post(self, incoming: Incoming) -> web.StreamResponse:
        """Answer a message.

        1. some media type of ours is accepted: 406
        2. the body can be read: see `read_body`
        3. it is JSON-RPC: 400
        4. while the daemon stops nothing new begins: 503; answers to what runs are taken
        5. it is modern: see `Dispatcher.answer_modern`
        6. it is legacy: see `SessionEndpoint.post`
        """
        if not (incoming.accepted.json or incoming.accepted.event_stream):
            return incoming.refuse(NOT_ACCEPTABLE)
        body = await read_body(incoming.request, limit=self._bounds.max_body)
        if isinstance(body, Refusal):
            return incoming.refuse(body)
        try:
            message = jsonrpc.decode(body, max_depth=self._bounds.max_depth)
        except RpcError as error:
            return whole_response(self._dispatcher.reject(error), headers=incoming.headers)
        if self._is_draining and isinstance(message, Request | Batch):
            return incoming.refuse(_DRAINING, message)
        if not isinstance(message, Batch) and is_modern(message, version_header=incoming.version):
            return await self._post_modern(message, incoming)
        return await self._legacy.post(message, incoming)

    async def _post_modern(self, message: Request | Notification | Response, incoming: Incoming) -> web.StreamResponse:
        if not (isinstance(message, Request) and message.method == _LISTEN):
            return await self._answer_modern(message, incoming)
        if not incoming.accepted.event_stream:
            return incoming.refuse(NOT_ACCEPTABLE, message)
        if self._streams.is_full:
            return incoming.refuse(self._streams.refusal, message)
        with self._streams.one(), self._admissions.stream(incoming.caller.identity):
            return await self._answer_modern(message, incoming)

    async def _answer_modern(
        self, message: Request | Notification | Response, incoming: Incoming
    ) -> web.StreamResponse:
        response = incoming.late_response(self._bounds.pace)
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        self._running.add(task)
        try:
            return await response.finish(await self._dispatcher.answer_modern(message, response))
        finally:
            self._running.discard(task)
            response.abandon()
