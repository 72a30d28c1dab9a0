"""The legacy half of Streamable HTTP: sessions, their requests, and their streams (2025-03-26 … 2025-11-25).

A request runs in a task of its session, and the connection that it came on only passes on what it says: a disconnect is
not a cancellation.
"""

import asyncio
from typing import Final

import structlog
from aiohttp import web

from gateway.errors import ErrorCode, RpcError
from gateway.protocol import jsonrpc, results
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.exchange import Reply
from gateway.protocol.jsonrpc import Batch, Message, Request
from gateway.protocol.session import Session
from gateway.protocol.versions import LEGACY, V2025_03_26, is_modern_date
from gateway.transports.admissions import Admissions
from gateway.transports.event_stream import EventStream, Pace
from gateway.transports.incoming import BUSY, MOST_IN_FLIGHT, NOT_ACCEPTABLE, SESSION_HEADER, Incoming
from gateway.transports.late_response import whole_response
from gateway.transports.ration import Ration
from gateway.transports.refusal import Refusal
from gateway.transports.streamable_http.kept_streams import Cursor
from gateway.transports.streamable_http.request_stream import RequestStream, Unheard
from gateway.transports.streamable_http.session_stream import SessionStream
from gateway.transports.streamable_http.sessions import LiveSession, Sessions

log: Final = structlog.get_logger()


class SessionEndpoint:
    """What legacy clients do: POST, GET and DELETE."""

    def __init__(
        self, *, dispatcher: Dispatcher, sessions: Sessions, streams: Ration, admissions: Admissions, pace: Pace
    ) -> None:
        self._dispatcher: Final = dispatcher
        self._sessions: Final = sessions
        self._streams: Final = streams
        self._admissions: Final = admissions
        self._pace: Final = pace

    async def post(self, message: Message, incoming: Incoming) -> web.StreamResponse:
        """Answer a legacy message.

        1. `initialize` without a session id opens a session
        2. anything else needs one: see `_admit`; nothing that is refused makes a session
        3. a request runs in the session, if not too many do: 503; anything else is taken at once
        """
        if isinstance(message, Request) and message.method == "initialize" and incoming.session_id is None:
            return await self._open(message, incoming)
        live = self._admit(incoming, message)
        if isinstance(live, Refusal):
            return incoming.refuse(live, message)
        if isinstance(message, Request | Batch):
            if live.load + (len(message.entries) if isinstance(message, Batch) else 1) > MOST_IN_FLIGHT:
                return incoming.refuse(BUSY, message)
            return await self._relay(message, live, incoming)
        reply = await self._dispatcher.answer_legacy(message, live.session, Unheard(incoming.caller))
        return whole_response(reply, headers=incoming.headers)

    async def get(self, incoming: Incoming) -> web.StreamResponse:
        """Open a stream for what belongs to no request, or go on with any stream of the session after an event of it.

        1. the session: see `_admit`
        2. event streams are accepted: 406
        3. there is room for another stream: 503
        4. `Last-Event-ID`, where there is one, is of this session: 400; what is no longer kept is a new stream's
        """
        live = self._admit(incoming)
        if isinstance(live, Refusal):
            return incoming.refuse(live)
        if not incoming.accepted.event_stream:
            return incoming.refuse(NOT_ACCEPTABLE)
        if (refusal := self._streams.refusal_of(incoming.caller.payer)) is not None:
            return incoming.refuse(refusal)
        self._dispatcher.identified(live.session, incoming.caller.identity)
        with self._admissions.stream(incoming.task, incoming.caller.identity):
            return await self._open_stream(live, incoming)

    async def _open_stream(self, live: LiveSession, incoming: Incoming) -> web.StreamResponse:
        cursor = None if incoming.last_event_id is None else live.streams.find(incoming.last_event_id)
        if isinstance(cursor, Refusal):
            return incoming.refuse(cursor)
        if cursor is not None:
            return await self._pass_on(live, cursor, self._event_stream(incoming))
        fresh = live.streams.open(answers_request=False)
        return await self._pass_on(live, Cursor(fresh, 0), self._event_stream(incoming, preamble=fresh.preamble))

    async def delete(self, incoming: Incoming) -> web.StreamResponse:
        live = self._admit(incoming)
        if isinstance(live, Refusal):
            return incoming.refuse(live)
        self._sessions.end(live.session.id)
        return web.Response(status=204, headers=incoming.headers)

    async def _open(self, request: Request, incoming: Incoming) -> web.StreamResponse:
        if (refusal := self._sessions.ration.refusal_of(incoming.caller.payer)) is not None:
            return incoming.refuse(refusal, request)
        session, reply = await self._dispatcher.open_session(request, Unheard(incoming.caller))
        if session is None:
            return whole_response(reply, headers=incoming.headers)
        self._sessions.open(session, caller=incoming.caller.payer)
        response = incoming.answering({SESSION_HEADER: session.id}).late_response(self._pace)
        try:
            return await response.finish(reply)
        finally:
            response.abandon()

    async def _relay(self, message: Request | Batch, live: LiveSession, incoming: Incoming) -> web.StreamResponse:
        """Let the session serve a request, and pass on what it says while this connection lasts."""
        kept = live.streams.open(answers_request=True)
        stream = RequestStream(message, caller=incoming.caller, stream=kept)
        response = incoming.late_response(self._pace, preamble=kept.preamble)
        ending = stream.attach(response)
        task = live.spawn(self._dispatcher.answer_legacy(message, live.session, stream))
        task.add_done_callback(lambda task: stream.finish(_reply_of(task, message)))
        try:
            return await response.end(await ending)
        finally:
            stream.detach(response)
            response.abandon()

    async def _pass_on(self, live: LiveSession, cursor: Cursor, out: EventStream) -> web.StreamResponse:
        """Write what came after the cursor, then what comes, until there is no more or the reader goes."""
        try:
            with self._streams.one(live.caller), live.reading():
                await out.open()
                ending = await cursor.stream.resume(out, after=cursor.after)
                if not cursor.stream.answers_request:
                    await _carry_outbox(live.session, cursor.stream)
                    cursor.stream.disconnect(out)
                return await out.close(await ending)
        finally:
            cursor.stream.disconnect(out)
            out.abandon()

    def _event_stream(self, incoming: Incoming, *, preamble: bytes = b"") -> EventStream:
        return EventStream(incoming.request, pace=self._pace, headers=incoming.headers, preamble=preamble)

    def _admit(self, incoming: Incoming, message: Message | None = None) -> LiveSession | Refusal:
        """Find the session that a request belongs to.

        1. a batch needs one of 2025-03-26: 400
        2. it is named: 400, or 405 for a modern client, which has nothing but POST
        3. it exists, and is the caller's: 404
        4. the version header, where there is one, names a legacy revision: 400
        """
        session_id, version = incoming.session_id, incoming.version
        live = None if session_id is None else self._sessions.find(session_id, owner=incoming.caller.identity.owner)
        if isinstance(message, Batch) and (live is None or live.session.revision != V2025_03_26):
            return _NO_BATCHES
        if session_id is None:
            is_modern = message is None and version is not None and is_modern_date(version)
            return _POST_ALONE if is_modern else _SESSION_REQUIRED
        if live is None:
            return _SESSION_UNKNOWN
        if version is not None and version not in LEGACY:
            return Refusal(status=400, message=f"MCP-Protocol-Version {version!r} is none of {', '.join(LEGACY)}")
        return live


_POST_ALONE: Final = Refusal(
    status=405, message="This revision of the protocol knows POST alone", headers={"Allow": "POST"}
)
_NO_BATCHES: Final = Refusal(status=400, message="Batches are part of revision 2025-03-26 alone, within a session")
_SESSION_REQUIRED: Final = Refusal(
    status=400, message=f"The header {SESSION_HEADER} is missing; a session begins with `initialize`"
)
_SESSION_UNKNOWN: Final = Refusal(
    status=404, message="There is no such session (any more); begin a new one with `initialize`"
)


async def _carry_outbox(session: Session, stream: SessionStream) -> None:
    """Say what belongs to no request, until the session ends."""
    with session.outbox.reader() as reader:
        while (message := await reader.get()) is not None:
            await stream.say(jsonrpc.encode(message))


def _reply_of(task: asyncio.Task[Reply], message: Request | Batch) -> Reply:
    if task.cancelled():
        return _session_ended(message)
    if (bug := task.exception()) is not None:
        log.error("request failed", exc_info=bug)
        return _failed(message, ErrorCode.INTERNAL_ERROR, "Internal error", status=500)
    return task.result()


def _session_ended(message: Request | Batch) -> Reply:
    return _failed(message, ErrorCode.INVALID_REQUEST, "The session ended before this was answered", status=404)


def _failed(message: Request | Batch, code: ErrorCode, why: str, *, status: int) -> Reply:
    request_id = message.id if isinstance(message, Request) else None
    return results.error_reply(RpcError(code, why), request_id=request_id, revision=None, status=status)
