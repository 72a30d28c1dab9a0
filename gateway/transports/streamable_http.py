"""Streamable HTTP: one path for both eras (2025-03-26 … 2025-11-25 basic/transports, 2026-07-28 streamable-http).

The era is decided by each POST's body and version header, never by what came before on the connection. A modern request
lives as long as its connection: going away cancels it. A legacy one belongs to its session: going away costs nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from aiohttp import web

from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json
from gateway.protocol import jsonrpc, meta
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.envelope import is_modern
from gateway.protocol.exchange import Binding, Caller, Reply
from gateway.protocol.jsonrpc import Batch, Message, Notification, Request, Response
from gateway.protocol.versions import LEGACY, V2025_03_26, is_modern_date
from gateway.transports.accept import Accepted, parse_accept
from gateway.transports.body import read_body
from gateway.transports.event_stream import EventStream, Pace
from gateway.transports.guard import ALLOWED_METHODS, Refusal
from gateway.transports.late_response import LateResponse, whole_response
from gateway.transports.request_stream import RequestStream
from gateway.transports.sessions import LiveSession, Sessions
from gateway.transports.streams import Streams

SESSION_HEADER: Final = "Mcp-Session-Id"
RETRY_AFTER_SECONDS: Final = 30
"""What a client is told that found no room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What one request may cost."""

    max_body: int
    """Bytes."""
    max_depth: int
    """How deep its JSON may nest."""
    pace: Pace


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """One HTTP request, past the guard."""

    request: web.Request
    caller: Caller
    accepted: Accepted
    headers: Mapping[str, str]
    """Fields that every response to it carries."""

    @property
    def version(self) -> str | None:
        return self.caller.headers.get(meta.HEADER_PROTOCOL_VERSION)

    @property
    def session_id(self) -> str | None:
        return self.caller.headers.get(SESSION_HEADER.lower())


class StreamableHttp:
    """The MCP endpoint."""

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        sessions: Sessions,
        streams: Streams,
        bounds: Bounds,
    ) -> None:
        self._dispatcher: Final = dispatcher
        self._sessions: Final = sessions
        self._streams: Final = streams
        self._bounds: Final = bounds
        self._methods: Final[Mapping[str, Callable[[Incoming], Awaitable[web.StreamResponse]]]] = {
            "POST": self._post,
            "GET": self._get,
            "DELETE": self._delete,
        }
        self._modern: Final[set[asyncio.Task[Json]]] = set()
        self._is_draining = False

    async def handle(self, request: web.Request, headers: Mapping[str, str]) -> web.StreamResponse:
        """Answer one request that passed the guard; `headers` go on its response."""
        method = self._methods.get(request.method)
        if method is None:
            return self.refuse(
                Refusal(status=405, message=f"Method not allowed: {request.method}"),
                headers={"Allow": ALLOWED_METHODS, **headers},
            )
        if self._is_draining:
            return self.refuse(_DRAINING, headers={**headers, "Connection": "close"})
        caller = Caller(binding=Binding.STREAMABLE_HTTP, address=request.remote or "", headers=_fields(request))
        accepted = parse_accept(request.headers.get("Accept"))
        return await method(Incoming(request=request, caller=caller, accepted=accepted, headers=headers))

    async def drain(self, seconds: float) -> None:
        """Take nothing new, give the calls in flight this long to end by themselves, then cancel the modern ones."""
        self._is_draining = True
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sessions.drain(seconds))
            if self._modern:
                group.create_task(_wait(self._modern, seconds))
        for task in self._modern:
            task.cancel()

    def refuse(self, refusal: Refusal, *, headers: Mapping[str, str], message: Message | None = None) -> web.Response:
        """Answer with an HTTP status and a JSON-RPC error, under the message's id if it is a request."""
        error = RpcError(ErrorCode.INVALID_REQUEST, refusal.message)
        reply = self._dispatcher.reject(error, request_id=message.id if isinstance(message, Request) else None)
        return whole_response(replace(reply, status=refusal.status), headers=headers)

    async def _post(self, incoming: Incoming) -> web.StreamResponse:
        """Answer a message.

        1. some media type of ours is accepted: 406
        2. the body can be read: see `read_body`
        3. it is JSON-RPC: 400
        4. it is modern: `Dispatcher.answer_modern` goes on
        5. it is legacy: `_post_legacy` goes on
        """
        if not (incoming.accepted.json or incoming.accepted.event_stream):
            return self.refuse(_NOT_ACCEPTABLE, headers=incoming.headers)
        body = await read_body(incoming.request, limit=self._bounds.max_body)
        if isinstance(body, Refusal):
            return self.refuse(body, headers=incoming.headers)
        try:
            message = jsonrpc.decode(body, max_depth=self._bounds.max_depth)
        except RpcError as error:
            return whole_response(self._dispatcher.reject(error), headers=incoming.headers)
        if not isinstance(message, Batch) and is_modern(message, version_header=incoming.version):
            return await self._answer_modern(message, incoming)
        return await self._post_legacy(message, incoming)

    async def _answer_modern(
        self, message: Request | Notification | Response, incoming: Incoming
    ) -> web.StreamResponse:
        if isinstance(message, Request) and message.method == _LISTEN:
            if not incoming.accepted.event_stream:
                return self.refuse(_NOT_ACCEPTABLE, headers=incoming.headers, message=message)
            if self._streams.is_full:
                return self._refuse_stream(incoming, message)
            with self._streams.one():
                return await self._serve_modern(message, incoming)
        return await self._serve_modern(message, incoming)

    async def _serve_modern(self, message: Request | Notification | Response, incoming: Incoming) -> web.StreamResponse:
        response = self._late_response(incoming)
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        self._modern.add(task)
        try:
            return await response.finish(await self._dispatcher.answer_modern(message, response))
        finally:
            self._modern.discard(task)
            response.abandon()

    async def _post_legacy(self, message: Message, incoming: Incoming) -> web.StreamResponse:
        """Answer a legacy message.

        1. `initialize` without a session id opens a session
        2. anything else needs one: see `_admit`; nothing that is refused makes a session
        3. a request runs in the session, anything else is taken at once
        """
        if isinstance(message, Request) and message.method == "initialize" and incoming.session_id is None:
            return await self._open_session(message, incoming)
        live = self._admit(incoming, message)
        if isinstance(live, Refusal):
            return self.refuse(live, headers=incoming.headers, message=message)
        if isinstance(message, Request | Batch):
            return await self._relay(message, live, incoming)
        reply = await self._dispatcher.answer_legacy(message, live.session, RequestStream(incoming.caller))
        return whole_response(reply, headers=incoming.headers)

    async def _open_session(self, request: Request, incoming: Incoming) -> web.StreamResponse:
        if self._sessions.is_full:
            return self.refuse(
                Refusal(status=503, message=f"All {self._sessions.limit} sessions are taken (limits.sessions)"),
                headers={**incoming.headers, **_RETRY},
                message=request,
            )
        session, reply = await self._dispatcher.open_session(request, RequestStream(incoming.caller))
        if session is None:
            return whole_response(reply, headers=incoming.headers)
        self._sessions.open(session)
        response = self._late_response(replace(incoming, headers={**incoming.headers, SESSION_HEADER: session.id}))
        try:
            return await response.finish(reply)
        finally:
            response.abandon()

    async def _relay(self, message: Request | Batch, live: LiveSession, incoming: Incoming) -> web.StreamResponse:
        """Let the session serve a request, and pass on what it says while this connection lasts."""
        stream = RequestStream(incoming.caller)
        response = self._late_response(incoming)
        stream.attach(response)
        task = live.spawn(self._dispatcher.answer_legacy(message, live.session, stream))
        try:
            await asyncio.wait([task])
            return await response.finish(self._session_ended(message) if task.cancelled() else task.result())
        finally:
            stream.detach()
            response.abandon()

    async def _get(self, incoming: Incoming) -> web.StreamResponse:
        """Open a stream for what belongs to no request.

        1. the session: see `_admit`; without one, a modern client hears that there are no streams: 405
        2. event streams are accepted: 406
        3. there is room for another stream: 503
        """
        if incoming.session_id is None:
            return self._refuse_without_session(incoming)
        live = self._admit(incoming)
        if isinstance(live, Refusal):
            return self.refuse(live, headers=incoming.headers)
        if not incoming.accepted.event_stream:
            return self.refuse(_NOT_ACCEPTABLE, headers=incoming.headers)
        if self._streams.is_full:
            return self._refuse_stream(incoming)
        return await self._pass_on(
            live, EventStream(incoming.request, pace=self._bounds.pace, headers=incoming.headers)
        )

    async def _pass_on(self, live: LiveSession, stream: EventStream) -> web.StreamResponse:
        """Carry the session's own messages until it ends or the reader goes."""
        try:
            with self._streams.one(), live.stream() as reader:
                await stream.open()
                while (message := await reader.get()) is not None:
                    await stream.send(jsonrpc.encode(message))
            return await stream.close()
        finally:
            stream.abandon()

    async def _delete(self, incoming: Incoming) -> web.StreamResponse:
        if incoming.session_id is None:
            return self._refuse_without_session(incoming)
        live = self._admit(incoming)
        if isinstance(live, Refusal):
            return self.refuse(live, headers=incoming.headers)
        self._sessions.end(live.session.id)
        return web.Response(status=204, headers=incoming.headers)

    def _admit(self, incoming: Incoming, message: Message | None = None) -> LiveSession | Refusal:
        """Find the session that a legacy request belongs to.

        1. a batch needs one of 2025-03-26: 400
        2. it is named: 400
        3. it exists, and is the caller's: 404
        4. the version header, where there is one, names a legacy revision: 400
        """
        session_id, version = incoming.session_id, incoming.version
        live = None if session_id is None else self._sessions.find(session_id, principal=incoming.caller.principal)
        if isinstance(message, Batch) and (live is None or live.session.revision != V2025_03_26):
            return _NO_BATCHES
        if session_id is None:
            return _SESSION_REQUIRED
        if live is None:
            return _SESSION_UNKNOWN
        if version is not None and version not in LEGACY:
            return Refusal(
                status=400, message=f"MCP-Protocol-Version {version!r} has no sessions; those with are {_LEGACY_NAMES}"
            )
        return live

    def _late_response(self, incoming: Incoming) -> LateResponse:
        return LateResponse(
            incoming.request,
            caller=incoming.caller,
            accepted=incoming.accepted,
            pace=self._bounds.pace,
            headers=incoming.headers,
        )

    def _refuse_without_session(self, incoming: Incoming) -> web.Response:
        if incoming.version is not None and is_modern_date(incoming.version):
            refusal = Refusal(status=405, message="This revision of the protocol knows POST alone")
            return self.refuse(refusal, headers={"Allow": "POST", **incoming.headers})
        return self.refuse(_SESSION_REQUIRED, headers=incoming.headers)

    def _refuse_stream(self, incoming: Incoming, message: Message | None = None) -> web.Response:
        refusal = Refusal(status=503, message=f"All {self._streams.limit} streams are taken (limits.streams)")
        return self.refuse(refusal, headers={**incoming.headers, **_RETRY}, message=message)

    def _session_ended(self, message: Request | Batch) -> Reply:
        error = RpcError(ErrorCode.INVALID_REQUEST, "The session ended before this was answered")
        reply = self._dispatcher.reject(error, request_id=message.id if isinstance(message, Request) else None)
        return replace(reply, status=404)


_LEGACY_NAMES: Final = ", ".join(LEGACY)
_RETRY: Final = {"Retry-After": str(RETRY_AFTER_SECONDS)}
_LISTEN: Final = "subscriptions/listen"
"""The one request whose answer is a stream by nature."""
_DRAINING: Final = Refusal(status=503, message="The server is about to stop")
_NOT_ACCEPTABLE: Final = Refusal(status=406, message="Accept must allow application/json or text/event-stream")
_NO_BATCHES: Final = Refusal(status=400, message="Batches are part of revision 2025-03-26 alone, within a session")
_SESSION_REQUIRED: Final = Refusal(
    status=400, message=f"The header {SESSION_HEADER} is missing; a session begins with `initialize`"
)
_SESSION_UNKNOWN: Final = Refusal(
    status=404, message="There is no such session (any more); begin a new one with `initialize`"
)


async def _wait(tasks: Collection[asyncio.Task[Json]], seconds: float) -> None:
    await asyncio.wait(tasks, timeout=seconds)


def _fields(request: web.Request) -> dict[str, str]:
    """Header fields by lower-case name; differing values of one name are joined (RFC 9110 §5.3) and match neither."""
    fields: dict[str, str] = {}
    for name, value in request.headers.items():
        key = name.lower()
        known = fields.get(key)
        fields[key] = value if known is None or known == value else f"{known}, {value}"
    return fields
