"""HTTP+SSE, the transport of 2024-11-05: a stream that says where to POST to, and messages POSTed there.

Deprecated since 2025-03-26 and still spoken by older clients, at whatever legacy revision they ask for. The stream is
the session: once it closes, what runs for it is cancelled and its address is gone (2024-11-05 basic/transports).
"""

import asyncio
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from gateway.errors import RpcError
from gateway.protocol import jsonrpc
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.exchange import Binding
from gateway.protocol.jsonrpc import Batch, Message, Request
from gateway.protocol.session import Session
from gateway.transports.admissions import Admissions
from gateway.transports.body import read_body
from gateway.transports.conversation import Conversation
from gateway.transports.event_stream import EventStream
from gateway.transports.incoming import BUSY, MOST_IN_FLIGHT, NOT_ACCEPTABLE, Bounds, Incoming
from gateway.transports.late_response import whole_response
from gateway.transports.ration import Ration
from gateway.transports.refusal import LEAVING, Refusal
from gateway.transports.visit import Visit

SSE_PATH: Final = "/sse"
MESSAGES_PATH: Final = "/messages"

_ID_BYTES: Final = 24
"""192 bits: whoever knows the address may speak for the session."""
_UNKNOWN: Final = Refusal(status=404, message=f"There is no such session (any more); open {SSE_PATH} for a new one")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Client:
    """One open stream, and what is said on it."""

    stream: EventStream
    conversation: Conversation
    owner: str | None
    ended: asyncio.Event


class HttpSse:
    """The two paths."""

    def __init__(self, *, dispatcher: Dispatcher, streams: Ration, admissions: Admissions, bounds: Bounds) -> None:
        self._dispatcher: Final = dispatcher
        self._streams: Final = streams
        self._admissions: Final = admissions
        self._bounds: Final = bounds
        self._clients: Final[dict[str, _Client]] = {}
        self._is_leaving = False

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def open_sessions(self) -> Iterator[Session]:
        return (session for client in self._clients.values() if (session := client.conversation.session))

    async def connect(self, visit: Visit) -> web.StreamResponse:
        """Open a stream, say where its messages go, and carry what is said until the client leaves.

        1. it is a GET: 405
        2. event streams are accepted: 406
        3. the daemon is not about to stop, and there is room for another stream: 503
        """
        incoming = Incoming.read(visit, binding=Binding.HTTP_SSE)
        refusal = self._refusal_of_stream(incoming)
        if refusal is not None:
            return incoming.refuse(refusal)
        session_id = secrets.token_urlsafe(_ID_BYTES)
        client = self._client(incoming)
        self._clients[session_id] = client
        task, identity = visit.task, visit.identity
        self._admissions.begin(task, identity)
        try:
            with self._streams.one(incoming.caller.payer), self._admissions.stream(task, identity):
                endpoint = f"{visit.approach.prefix}{MESSAGES_PATH}?session_id={session_id}"
                await client.stream.send(endpoint.encode(), event="endpoint")
                await client.ended.wait()
                return await client.stream.close()
        finally:
            self._admissions.end(task)
            del self._clients[session_id]
            client.stream.abandon()
            await client.conversation.close()

    async def post(self, visit: Visit) -> web.StreamResponse:
        """Take a message; what there is to answer goes on the stream.

        1. it is a POST: 405
        2. the session is there, and the caller's: 404
        3. the body can be read, see `read_body`, and is JSON-RPC: 400
        4. the session is still there: 404
        5. there is room for another request: 503
        """
        incoming, request = Incoming.read(visit, binding=Binding.HTTP_SSE), visit.request
        if request.method != "POST":
            return incoming.refuse(_only("POST"))
        session_id = request.query.get("session_id", "")
        client = self._clients.get(session_id)
        if client is None or client.owner != incoming.caller.identity.owner:
            return incoming.refuse(_UNKNOWN)
        body = await read_body(request, limit=self._bounds.max_body, seconds=self._bounds.receive_seconds)
        if isinstance(body, Refusal):
            return incoming.refuse(body)
        try:
            message = jsonrpc.decode(body, max_depth=self._bounds.max_depth)
        except RpcError as error:
            return whole_response(self._dispatcher.reject(error), headers=incoming.headers)
        if (refusal := self._refusal_of(message, client, session_id)) is not None:
            return incoming.refuse(refusal, message)
        await client.conversation.take(message, incoming.caller)
        return web.Response(status=202, text="Accepted", headers=incoming.headers)

    def _refusal_of(self, message: Message, client: _Client, session_id: str) -> Refusal | None:
        if session_id not in self._clients:
            return _UNKNOWN  # it ended while the body came, and nobody would end what begins now
        if isinstance(message, Request | Batch) and client.conversation.in_flight >= MOST_IN_FLIGHT:
            return BUSY
        return None

    def begin_leaving(self) -> None:
        """Open no streams any more. Calls are answered as before."""
        self._is_leaving = True

    async def drain(self, seconds: float) -> None:
        """Give the calls in flight this long to end by themselves, cut off what is left, and end the streams."""
        self.begin_leaving()
        await asyncio.gather(*(self._finish(client, seconds) for client in self._clients.values()))

    async def _finish(self, client: _Client, seconds: float) -> None:
        await client.conversation.finish(seconds)
        await client.conversation.cut_off()
        client.ended.set()

    def _client(self, incoming: Incoming) -> _Client:
        stream = EventStream(incoming.request, pace=self._bounds.pace, headers=incoming.headers)
        ended = asyncio.Event()

        async def write(message: bytes) -> None:
            try:
                await stream.send(message)
            except ConnectionError:
                ended.set()  # whoever does not read is gone

        conversation = Conversation(dispatcher=self._dispatcher, caller=incoming.caller, write=write)
        return _Client(stream=stream, conversation=conversation, owner=incoming.caller.identity.owner, ended=ended)

    def _refusal_of_stream(self, incoming: Incoming) -> Refusal | None:
        if incoming.request.method != "GET":
            return _only("GET")
        if not incoming.accepted.event_stream:
            return NOT_ACCEPTABLE
        if self._is_leaving:
            return LEAVING
        return self._streams.refusal_of(incoming.caller.payer)


def _only(method: str) -> Refusal:
    return Refusal(status=405, message=f"This path takes {method} alone", headers={"Allow": method})
