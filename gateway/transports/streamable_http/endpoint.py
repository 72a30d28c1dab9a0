"""Streamable HTTP: one path for legacy revisions (2025-03-26 … 2025-11-25) and the modern revision (2026-07-28).

The body and version header of a POST request determine the era. A modern request is cancelled when its connection
closes. A legacy request belongs to its session (see `session_endpoint`).
"""

import asyncio
from typing import Final

from aiohttp import web

from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.envelope import is_modern
from gateway.transports.errors import DRAINING, NO_STREAM_ACCEPTED, NOT_ACCEPTABLE, OPENERS, HttpError
from gateway.transports.http.active_requests import ActiveRequests
from gateway.transports.http.body import read_body
from gateway.transports.http.host_and_origin import ALLOWED_METHODS
from gateway.transports.http.request import HttpRequest, Task
from gateway.transports.quota import RequestLimits, ResourceQuota
from gateway.transports.sse.response_channel import ResponseChannel
from gateway.transports.streamable_http.session_endpoint import SessionEndpoint
from gateway.transports.streamable_http.sessions import Sessions
from gateway.wire.jsonrpc import Batch, InvalidMessageError, Notification, Request, Response

_LISTEN: Final = "subscriptions/listen"
"""The only method whose response is always a stream."""
_SHUTDOWN_GRACE_SECONDS: Final = 2.0
_NOT_ALLOWED: Final = HttpError(status=405, message="Method not allowed", headers={"Allow": ALLOWED_METHODS})


class StreamableHttp:
    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        sessions: Sessions,
        streams: ResourceQuota,
        active_requests: ActiveRequests,
        limits: RequestLimits,
    ) -> None:
        self._dispatcher: Final = dispatcher
        self._sessions: Final = sessions
        self._streams: Final = streams
        self._active_requests: Final = active_requests
        self._limits: Final = limits
        self._legacy: Final = SessionEndpoint(
            dispatcher=dispatcher,
            sessions=sessions,
            streams=streams,
            active_requests=active_requests,
            limits=limits,
        )
        self._running: Final[dict[Task, bool]] = {}
        """The tasks of all requests. The value is True while a modern request has no response."""
        self._is_draining = False

    async def handle(self, request: HttpRequest) -> web.StreamResponse:
        task = request.task
        self._running[task] = False
        self._active_requests.begin(task, request.identity, view=request.view)
        try:
            match request.raw.method:
                case "POST":
                    return await self._post(request)
                case "GET" if self._is_draining:
                    return request.refuse(DRAINING)
                case "GET":
                    return await self._legacy.get(request)
                case "DELETE":
                    return await self._legacy.delete(request)
                case _:
                    return request.refuse(_NOT_ALLOWED)
        finally:
            self._active_requests.end(task)
            del self._running[task]

    def begin_draining(self) -> None:
        """Refuse new sessions and streams, but continue to accept calls."""
        self._is_draining = True

    async def drain(self, seconds: float) -> None:
        """Close the streams and wait up to `seconds` for running and new calls. Then cancel the modern calls.

        Legacy calls are cancelled later, when `Sessions` closes.
        """
        self.begin_draining()
        self._sessions.end_streams()
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (busy := self._running.keys() | self._sessions.running) and (left := end - loop.time()) > 0:
            await asyncio.wait(busy, timeout=left)
        # Stop the dispatcher first, so that cancelled calls respond with an error.
        self._dispatcher.stop()
        modern = [task for task, is_modern in self._running.items() if is_modern]
        for task in modern:
            task.cancel()
        if modern:
            await asyncio.wait(self._running, timeout=_SHUTDOWN_GRACE_SECONDS)

    async def _post(self, request: HttpRequest) -> web.StreamResponse:
        """Handle a message.

        1. The client accepts JSON or event streams (otherwise 406).
        2. The body is readable (see `read_body`).
        3. The body is JSON-RPC (otherwise 400).
        4. During shutdown, the message does not open a session or subscription (otherwise 503).
        5. `Dispatcher.answer` checks a modern message.
        6. `SessionEndpoint.post` checks a legacy message.
        """
        accepted = request.accepted
        # MCP 2026-07-28 streamable-http, "Sending Messages", 2: clients must accept both types. We require only one.
        if not (accepted.json or accepted.event_stream):
            return request.refuse(NOT_ACCEPTABLE)
        body = await read_body(request.raw, limit=self._limits.max_body, seconds=self._limits.receive_seconds)
        if not isinstance(body, bytes):
            return request.refuse(body)
        message = self._dispatcher.decode(body)
        if isinstance(message, InvalidMessageError):
            return await self._legacy.refuse_unreadable(message, request)
        if self._is_draining and isinstance(message, Request) and message.method in OPENERS:
            return request.refuse(DRAINING, message)
        if isinstance(message, Batch) or not is_modern(message, version_header=request.version):
            return await self._legacy.post(message, request)
        listens = isinstance(message, Request) and message.method == _LISTEN
        return await (self._listen if listens else self._answer)(message, request)

    async def _listen(self, message: Request | Notification | Response, request: HttpRequest) -> web.StreamResponse:
        if not request.accepted.event_stream:
            return request.refuse(NO_STREAM_ACCEPTED, message)
        caller = request.caller.rate_limit_key
        if (refusal := await self._streams.reserve(caller)) is not None:
            return request.refuse(refusal, message)
        try:
            self._active_requests.begin_stream(request.task, request.identity)
            return await self._answer(message, request)
        finally:
            self._streams.release(caller)

    async def _answer(self, message: Request | Notification | Response, request: HttpRequest) -> web.StreamResponse:
        response = ResponseChannel(request, limits=self._limits)
        response.open_if_late()
        self._running[request.task] = True
        try:
            reply = await self._dispatcher.answer(message, response)
            # A drain must not cancel the writing of a response.
            self._running[request.task] = False
            writing = response.finish(reply)
            del reply  # Free the reply while its copy is written.
            return await writing
        finally:
            response.stop()
