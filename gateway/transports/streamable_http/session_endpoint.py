"""The legacy part of Streamable HTTP: sessions, their requests and streams (2025-03-26 … 2025-11-25).

A request runs in a task of its session, and the connection only relays the output. A disconnect therefore does not
cancel the request.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import structlog
from aiohttp import web

from gateway.errors import ErrorCode, RpcError, StoreUnavailableError
from gateway.json_types import Json
from gateway.protocol import results
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.exchange import ChannelExchange, Exchange, Reply
from gateway.state.redis_sessions import CHANGED, SessionChange
from gateway.transports.errors import BUSY, MAX_IN_FLIGHT, NO_STREAM_ACCEPTED, RETRY, HttpError
from gateway.transports.http.active_requests import ActiveRequests
from gateway.transports.http.request import SESSION_HEADER, HttpRequest
from gateway.transports.http.response import whole_response
from gateway.transports.quota import RequestLimits, ResourceQuota
from gateway.transports.sse.event_copies import RemotePlace
from gateway.transports.sse.response_channel import ResponseChannel, encode_event
from gateway.transports.sse.session_streams import Cursor, SessionStream
from gateway.transports.streamable_http.live_session import LiveSession
from gateway.transports.streamable_http.sessions import Sessions
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import (
    Batch,
    InvalidMessageError,
    Message,
    Notification,
    Request,
    RequestId,
    Response,
    size_of,
)
from gateway.wire.revisions import LEGACY, has_batches, is_modern_date

log: Final = structlog.get_logger(__name__)


class SessionEndpoint:
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
        self._replica: Final = sessions.replica
        if self._replica is not None:
            self._replica.mailbox.on(CHANGED, self._take_change)
            self._replica.mailbox.on(FORWARDED, self._receive)
            self._replica.store.on_return(sessions.catch_up)

    async def post(self, message: Message, http: HttpRequest) -> web.StreamResponse:
        """Handle a legacy message.

        1. `initialize` without a session id opens a session.
        2. All other messages need a session (see `_admit`).
        3. Batches need a session of revision 2025-03-26 (otherwise 400).
        4. Up to `MAX_IN_FLIGHT` requests run in the session (otherwise 503). Other messages are handled at once.
        """
        if isinstance(message, Request) and message.method == "initialize" and http.session_id is None:
            return await self._open(message, http)
        live = await self._admit(http, message)
        if isinstance(live, HttpError):
            return http.refuse(live, message)
        if isinstance(message, (Request, Batch)):
            if (refusal := _refusal_of(message, live)) is not None:
                return http.refuse(refusal, message, revision=live.session.revision)
            return await self._relay(message, live, http)
        return await self._handle_one_way(message, live, http)

    async def refuse_unreadable(self, error: InvalidMessageError, http: HttpRequest) -> web.Response:
        """Reject an invalid message, in the error format of the session if the caller owns the session."""
        session_id, version = http.session_id, http.version
        if session_id is None or (version is not None and is_modern_date(version)):
            return http.refuse(error)
        live = await self._sessions.find(session_id, http.caller)
        return http.refuse(error, revision=live.session.revision if isinstance(live, LiveSession) else None)

    async def get(self, http: HttpRequest) -> web.StreamResponse:
        """Open the session's GET stream, or resume any stream after an event.

        1. The request belongs to a session (see `_admit`).
        2. The client accepts event streams (otherwise 406).
        3. The quota of streams allows another stream (otherwise 503).
        4. `Last-Event-ID`, if present, belongs to this session (otherwise 400). If the event is no longer stored, a new
           stream is opened.
        """
        live = await self._admit(http)
        if isinstance(live, HttpError):
            return http.refuse(live)
        if not http.accepted.event_stream:
            return http.refuse(NO_STREAM_ACCEPTED)
        if (refusal := await self._streams.reserve(live.caller)) is not None:
            return http.refuse(refusal)
        try:
            if self._sessions.served_here(live.session.id) is not live:  # The session has ended.
                return http.refuse(_SESSION_UNKNOWN)
            self._dispatcher.notifier.identity_changed(live.session, http.caller.identity)
            self._active_requests.begin_stream(http.task, http.caller.identity)
            cursor = None if http.last_event_id is None else live.streams.find(http.last_event_id)
            if isinstance(cursor, HttpError):
                return http.refuse(cursor)
            return await self._open_stream(live, cursor, http)
        finally:
            self._streams.release(live.caller)

    def _open_stream(
        self, live: LiveSession, cursor: Cursor | RemotePlace | None, http: HttpRequest
    ) -> Awaitable[web.StreamResponse]:
        """Resume or open a stream. Not a coroutine, because an open stream would keep its frame in memory."""
        if isinstance(cursor, Cursor):
            return self._stream_events(live, cursor, self._channel(http))
        # Without copies, the events of other processes are lost.
        if cursor is not None and (self._sessions.copies is not None or cursor.answers is not None):
            return self._resume_remote(live, cursor, http)
        fresh = SessionStream(live.streams, http.caller)
        return self._stream_events(live, Cursor(fresh, 0), self._channel(http, preamble=fresh.preamble))

    async def delete(self, http: HttpRequest) -> web.StreamResponse:
        live = await self._admit(http)
        if isinstance(live, HttpError):
            return http.refuse(live)
        await self._sessions.delete(live.session.id)
        return web.Response(status=204, headers=http.response_headers)

    async def _open(self, request: Request, http: HttpRequest) -> web.StreamResponse:
        # Check the quota before any work. `Sessions.open` counts the session.
        if (refusal := self._sessions.quota.refusal_of(http.caller.rate_limit_key)) is not None:
            return http.refuse(refusal, request)
        reply = await self._dispatcher.answer(request, ChannelExchange(caller=http.caller))
        session = reply.session
        if session is None:
            return whole_response(reply, headers=http.response_headers)
        opened = await self._sessions.open(session, caller=http.caller.rate_limit_key)
        if isinstance(opened, HttpError):
            return http.refuse(opened, request)
        headers = {**http.response_headers, SESSION_HEADER: session.id}
        return await ResponseChannel(http, limits=self._limits, headers=headers).finish(reply)

    async def _handle_one_way(
        self, message: Notification | Response, live: LiveSession, http: HttpRequest
    ) -> web.StreamResponse:
        if (refusal := await self._forward(message, live)) is not None:
            return http.refuse(refusal, message)
        reply = await self._answer(message, ChannelExchange(caller=http.caller), live)
        return whole_response(reply, headers=http.response_headers)

    async def _relay(self, message: Request | Batch, live: LiveSession, http: HttpRequest) -> web.StreamResponse:
        """Run a request in the session, and relay its output while this connection lasts."""
        stream = SessionStream(live.streams, http.caller, message)
        response = ResponseChannel(http, limits=self._limits, preamble=stream.preamble)
        response.open_if_late()
        ending = stream.connect(response)

        def finish(task: asyncio.Task[Reply]) -> None:
            if not stream.is_over:  # The task was cancelled or failed.
                stream.finish(_reply_of(task, message))

        live.spawn(self._answer_on(stream, message, live), finish)
        try:
            # A connection can end before its call does (`close_stream`).
            return await response.end(await ending)
        finally:
            stream.disconnect(response)
            response.stop()

    async def _answer_on(self, stream: SessionStream, message: Request | Batch, live: LiveSession) -> Reply:
        """Run a request and finish its stream in the same asyncio task, which saves an iteration of the event loop."""
        reply = await self._answer(message, stream, live)
        stream.finish(reply)
        return reply

    async def _answer(self, message: Message, exchange: Exchange, live: LiveSession) -> Reply:
        reply = await self._dispatcher.answer(message, exchange, live.session)
        if live.has_changed:
            await self._sessions.save(live)
        return reply

    async def _forward(self, message: Notification | Response, live: LiveSession) -> HttpError | None:
        """Forward a message that concerns other replicas. Return an error if the store is unavailable.

        A response goes to the replica whose name the request id contains. Notifications of changed roots, and
        cancellations of requests that do not run here, go to all replicas that serve the session.
        """
        if self._replica is None:
            return None
        try:
            match message:
                case Response(id=str(request_id)):
                    # Check the name, because clients can invent ids and the name becomes part of a key in the store.
                    begin, asked_by, *_ = [*request_id.split("-"), ""]
                    if request_id not in live.session.pending_answers and begin == "gateway" and asked_by.isalnum():
                        outcome = {"result": message.result} if message.error is None else {"error": message.error}
                        await self._replica.mailbox.ask(
                            asked_by, FORWARDED, _forwarded(live, {"id": request_id, **outcome})
                        )
                case Notification() if _is_for_others(message, live):
                    body = _forwarded(live, {"method": message.method, "params": message.params})
                    await self._replica.sessions.tell_holders(live.nonce, FORWARDED, body)
        except StoreUnavailableError as error:
            return HttpError(status=503, message=error.message, headers=RETRY)
        return None

    async def _receive(self, body: bytes) -> bytes:
        """Handle a message that another replica has forwarded, and return an empty reply."""
        session_id, encoded = _FORWARDED_MESSAGES.decode(body)
        live = self._sessions.served_here(session_id)
        if live is not None:
            message = self._dispatcher.decode(encoded)
            match message:
                case Response():
                    live.session.take_answer(message)
                case Notification(method="notifications/cancelled"):
                    live.session.in_flight.cancel(message.params.get("requestId"))
                case Notification(method="notifications/roots/list_changed"):
                    self._dispatcher.notifier.roots_changed(live.session.id)
        return b""

    async def _take_change(self, body: bytes) -> bytes:
        self._sessions.take_change(_CHANGES.decode(body))
        return b""

    async def _resume_remote(self, live: LiveSession, place: RemotePlace, http: HttpRequest) -> web.StreamResponse:
        """Relay another replica's stream. A request's stream ends with its response. A GET stream continues here."""
        copies, out = self._sessions.copies, self._channel(http)
        fresh: SessionStream | None = None
        live.begin_reading()
        try:
            # Connect the client first, because the other replica can take a while to respond.
            await out.open()
            if copies is not None:
                async for frame in copies.read(live.nonce, place):
                    if frame is None:
                        return await out.end()
                    await out.write(frame)
            if place.answers is not None:
                # Send an error, so that the client does not wait forever.
                return await out.end(_lost(place.answers))
            fresh = SessionStream(live.streams, http.caller)
            await out.write(fresh.preamble())
        except StoreUnavailableError:
            return await out.end()  # The client can resume later.
        finally:
            live.end_reading()
            if fresh is None:
                out.stop()
        return await self._stream_events(live, Cursor(fresh, 0), out)

    async def _stream_events(self, live: LiveSession, cursor: Cursor, out: ResponseChannel) -> web.StreamResponse:
        """Write the events after the cursor and all new events, until the stream or the connection ends."""
        live.begin_reading()  # Use no context manager, because an open stream would keep its frame in memory.
        try:
            await out.open()
            ending = await cursor.stream.resume(out, after=cursor.after)
            if not cursor.stream.answers_request:
                # Send events until the session ends or the daemon shuts down.
                await live.session.outbox.send_each(cursor.stream.send_event)
                cursor.stream.disconnect(out)
            return await out.end(await ending)
        finally:
            live.end_reading()
            cursor.stream.disconnect(out)
            out.stop()

    def _channel(self, http: HttpRequest, *, preamble: Callable[[], bytes] = bytes) -> ResponseChannel:
        return ResponseChannel(http, limits=self._limits, preamble=preamble, until_close=True)

    async def _admit(self, http: HttpRequest, message: Message | None = None) -> LiveSession | HttpError:
        """Find the session of a request.

        1. A batch has a session (otherwise 400).
        2. The request has a session id (otherwise 400, or 405 for modern clients, which only use POST).
        3. The session exists and matches the caller and the view (otherwise 404, see `Sessions.find`).
        4. The version header, if present, is a legacy revision (otherwise 400).
        """
        session_id, version = http.session_id, http.version
        live = None if session_id is None else await self._sessions.find(session_id, http.caller)
        if not isinstance(live, LiveSession) and live is not None:
            return live
        if isinstance(message, Batch) and live is None:
            return _NO_BATCHES
        if session_id is None:
            # MCP 2026-07-28 streamable-http: 405 for GET and DELETE.
            is_modern = message is None and version is not None and is_modern_date(version)
            return _POST_ALONE if is_modern else _SESSION_REQUIRED
        if live is None:
            return _SESSION_UNKNOWN
        # 2025-11-25 "Protocol Version Header": 400. Without the header, the session's revision applies.
        if version is not None and version not in LEGACY:
            why = f"MCP-Protocol-Version {version!r} is not supported in a session. Supported: {', '.join(LEGACY)}"
            return HttpError(status=400, message=why)
        return live


_POST_ALONE: Final = HttpError(
    status=405, message="This revision of the protocol only supports POST", headers={"Allow": "POST"}
)
_NO_BATCHES: Final = HttpError(status=400, message="Batches are only supported in a session of revision 2025-03-26")
# 2025-11-25 basic/transports, "Session Management", 2 to 4: 400 without an id. 404 makes the client initialize again.
_SESSION_REQUIRED: Final = HttpError(
    status=400, message=f"The {SESSION_HEADER} header is missing. Start a session with `initialize`"
)
_SESSION_UNKNOWN: Final = HttpError(status=404, message="The session does not exist. Start a new one with `initialize`")


FORWARDED: Final = "session message"
_FORWARDED_MESSAGES: Final = msgspec.msgpack.Decoder(tuple[str, bytes])
"""Decodes a forwarded message: the session id, and the notification or response as JSON."""
_CHANGES: Final = msgspec.msgpack.Decoder(SessionChange)


def _is_for_others(notification: Notification, live: LiveSession) -> bool:
    if notification.method == "notifications/cancelled":
        return notification.params.get("requestId") not in live.session.in_flight
    return notification.method == "notifications/roots/list_changed"


def _forwarded(live: LiveSession, members: dict[str, Json]) -> bytes:
    message = jsonrpc.encode({"jsonrpc": jsonrpc.VERSION, **members})
    return msgspec.msgpack.encode((live.session.id, message))


def _refusal_of(message: Request | Batch, live: LiveSession) -> HttpError | None:
    # 2025-06-18 removed batches.
    if isinstance(message, Batch) and not has_batches(live.session.revision):
        return _NO_BATCHES
    return BUSY if live.load + size_of(message) > MAX_IN_FLIGHT else None


def _lost(request_id: RequestId) -> bytes:
    error = RpcError(ErrorCode.INTERNAL_ERROR, "The server restarted before it responded")
    return encode_event(results.error_reply(error, request_id=request_id, revision=None).body or b"")


def _reply_of(task: asyncio.Task[Reply], message: Request | Batch) -> Reply:
    if task.cancelled():
        return _failed(
            message, ErrorCode.INVALID_REQUEST, "The session ended before the request was completed", status=404
        )
    if (bug := task.exception()) is not None:
        log.error("request failed", exc_info=bug)
        return _failed(message, ErrorCode.INTERNAL_ERROR, "Internal error", status=500)
    return task.result()


def _failed(message: Request | Batch, code: ErrorCode, why: str, *, status: int) -> Reply:
    request_id = message.id if isinstance(message, Request) else None
    return results.error_reply(RpcError(code, why), request_id=request_id, revision=None, status=status)
