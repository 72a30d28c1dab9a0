"""HTTP+SSE (2024-11-05): a client opens a stream, and POSTs messages to the URL that the stream announces.

The transport is deprecated since 2025-03-26, but older clients use it with every legacy revision. A session ends when
its stream closes (MCP 2024-11-05 basic/transports).
"""

import asyncio
import secrets
from collections.abc import Iterator
from typing import Final

import msgspec
from aiohttp import web
from msgspec.structs import replace

from gateway.access.identity import Identity
from gateway.errors import StoreUnavailableError
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.exchange import Binding, Caller
from gateway.protocol.session import Session
from gateway.state.mailbox import Mailbox
from gateway.state.replica import Replica
from gateway.transports.duplex_session import DuplexSession
from gateway.transports.errors import BUSY, DRAINING, MAX_IN_FLIGHT, NO_STREAM_ACCEPTED, RETRY, HttpError
from gateway.transports.http.active_requests import ActiveRequests
from gateway.transports.http.body import read_body
from gateway.transports.http.request import HttpRequest
from gateway.transports.quota import RequestLimits, ResourceQuota
from gateway.transports.sse.response_channel import ResponseChannel, encode_event
from gateway.wire.jsonrpc import Batch, InvalidMessageError, Message, Request, size_of

SSE_PATH: Final = "/sse"
MESSAGES_PATH: Final = "/messages"

_ID_BYTES: Final = 24
"""A session id has 192 random bits, because the id is the only credential of anonymous callers."""
_UNKNOWN: Final = HttpError(status=404, message=f"The session does not exist. Open {SSE_PATH} to start a new one")
_KIND: Final = "http+sse message"
_GONE: Final = HttpError(status=404, message="The replica that held this session's stream is gone. Open a new stream")
_SILENT: Final = HttpError(
    status=503, message="The replica that holds this session's stream does not respond", headers=RETRY
)


class StreamMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message to forward to another replica, with the sender's identity but without credentials."""

    session_id: str
    message: bytes
    identity: Identity
    view: str | None
    address: str

    @property
    def caller(self) -> Caller:
        return Caller(binding=Binding.HTTP_SSE, identity=self.identity, view=self.view, address=self.address)


class _Client(msgspec.Struct, frozen=True, kw_only=True):
    caller: Caller
    stream: ResponseChannel
    channel: DuplexSession
    ended: asyncio.Event


class HttpSse:
    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        streams: ResourceQuota,
        active_requests: ActiveRequests,
        limits: RequestLimits,
        replica: Replica | None = None,
    ) -> None:
        self._dispatcher: Final = dispatcher
        self._streams: Final = streams
        self._active_requests: Final = active_requests
        self._limits: Final = limits
        self._clients: Final[dict[str, _Client]] = {}
        self._is_draining = False
        self._replica: Final = replica
        if replica is not None:
            replica.mailbox.on(_KIND, self._receive)

    @property
    def open_sessions(self) -> Iterator[Session]:
        return (session for client in self._clients.values() if (session := client.channel.session))

    async def connect(self, request: HttpRequest) -> web.StreamResponse:
        """Open a stream, announce its message URL, and serve it until the client disconnects.

        1. The method is GET (otherwise 405).
        2. The client accepts event streams (otherwise 406).
        3. The daemon is not shutting down, and the quota of streams allows another stream (otherwise 503).
        """
        caller = request.caller.rate_limit_key
        refusal = self._refusal_of_stream(request) or await self._streams.reserve(caller)
        if refusal is not None:
            return request.refuse(refusal)
        try:
            return await self._connect(request)
        finally:
            self._streams.release(caller)

    async def _connect(self, request: HttpRequest) -> web.StreamResponse:
        session_id = secrets.token_urlsafe(_ID_BYTES)
        if self._replica is not None:
            session_id = f"{self._replica.name}.{session_id}"
        client = self._client(request)
        self._clients[session_id] = client
        task, identity = request.task, request.identity
        self._active_requests.begin(task, identity, view=request.view)
        try:
            self._active_requests.begin_stream(task, identity)
            view = "" if request.view is None else f"/{request.view}"
            endpoint = f"{request.client_endpoint.prefix}{MESSAGES_PATH}{view}?session_id={session_id}"
            # MCP 2024-11-05 basic/transports, "HTTP with SSE". Relative, so that the URL is valid behind any proxy.
            await client.stream.write(encode_event(endpoint.encode(), kind="endpoint"))
            await client.ended.wait()
            return await client.stream.end()
        finally:
            self._active_requests.end(task)
            # Unregister the client first, so that no call starts after the running calls are cancelled.
            del self._clients[session_id]
            client.stream.stop()
            await client.channel.close()

    async def post(self, request: HttpRequest) -> web.StreamResponse:
        """Accept a POSTed message. The response to a request is sent on the stream.

        1. The method is POST (otherwise 405).
        2. The session exists and matches the caller and the view (otherwise 404). The session's replica checks both.
        3. The body is readable (see `read_body`) and JSON-RPC (otherwise 400).
        4. The session still exists after the body was read (otherwise 404).
        5. The session has fewer than `MAX_IN_FLIGHT` requests in flight (otherwise 503).
        """
        if request.raw.method != "POST":
            return request.refuse(_only("POST"))
        session_id = request.raw.query.get("session_id", "")
        client = self._client_of(session_id, request.caller)
        replica = self._replica_of(session_id)
        if client is None and replica is None:
            return request.refuse(_UNKNOWN)
        # The session is checked before this, because bodies are only read for callers with a session.
        body = await read_body(request.raw, limit=self._limits.max_body, seconds=self._limits.receive_seconds)
        if isinstance(body, HttpError):
            return request.refuse(body)
        message = self._dispatcher.decode(body)
        if isinstance(message, InvalidMessageError):
            session = None if client is None else client.channel.session
            return request.refuse(message, revision=None if session is None else session.revision)
        if client is not None:
            refusal = await self._take(message, client, session_id, request.caller)
        elif self._replica is not None and replica is not None:
            refusal = await self._forward(self._replica.mailbox, replica, session_id, body, request.caller)
        if refusal is not None:
            return request.refuse(refusal, message)
        return web.Response(status=202, text="Accepted", headers=request.response_headers)

    async def _take(self, message: Message, client: _Client, session_id: str, caller: Caller) -> HttpError | None:
        if (refusal := self._refusal_of(message, client, session_id)) is None:
            await client.channel.handle(message, caller)
        return refusal

    def _replica_of(self, session_id: str) -> str | None:
        """Return the replica whose name the session id contains, or None if the session belongs to this process."""
        # Check the name, because clients can invent ids and the name becomes part of a key in the store.
        name, dot, _ = session_id.partition(".")
        if self._replica is None or not (dot and name.isalnum() and name.isascii()):
            return None
        return None if name == self._replica.name else name

    @staticmethod
    async def _forward(
        mailbox: Mailbox, replica: str, session_id: str, message: bytes, caller: Caller
    ) -> HttpError | None:
        """Forward a message to the replica that holds the session. Return an error if the message is rejected."""
        forwarded = StreamMessage(
            session_id=session_id,
            message=message,
            identity=caller.identity,
            view=caller.view,
            address=caller.address,
        )
        try:
            reply = await mailbox.ask(replica, _KIND, msgspec.msgpack.encode(forwarded))
            if reply is not None:
                return _REFUSALS.decode(reply)
            return _SILENT if await mailbox.is_there(replica) else _GONE
        except StoreUnavailableError as error:
            return HttpError(status=503, message=error.message, headers=RETRY)

    async def _receive(self, body: bytes) -> bytes:
        return msgspec.msgpack.encode(await self._handle_forwarded(_MESSAGES.decode(body)))

    async def _handle_forwarded(self, forwarded: StreamMessage) -> HttpError | None:
        """Handle a forwarded message. The caller's headers and token come from the request that opened the stream."""
        caller = forwarded.caller
        client = self._client_of(forwarded.session_id, caller)
        if client is None:
            return _UNKNOWN
        message = self._dispatcher.decode(forwarded.message)
        if isinstance(message, InvalidMessageError):  # this replica can have other limits, or another version
            return HttpError(status=400, message=message.message)
        own = replace(client.caller, identity=caller.identity, address=caller.address)
        return await self._take(message, client, forwarded.session_id, own)

    def _client_of(self, session_id: str, caller: Caller) -> _Client | None:
        client = self._clients.get(session_id)
        if client is None or client.caller.view != caller.view:
            return None
        return client if client.caller.identity.subject_key == caller.identity.subject_key else None

    def _refusal_of(self, message: Message, client: _Client, session_id: str) -> HttpError | None:
        if session_id not in self._clients:
            return _UNKNOWN  # The session ended while the body was read.
        if isinstance(message, Request | Batch) and client.channel.in_flight + size_of(message) > MAX_IN_FLIGHT:
            return BUSY
        return None

    def end(self, session: Session) -> bool:
        """End a session and its stream. Return False if this replica does not hold the session."""
        client = next((each for each in self._clients.values() if each.channel.session is session), None)
        if client is not None:
            client.ended.set()
        return client is not None

    def begin_draining(self) -> None:
        self._is_draining = True

    async def drain(self, seconds: float) -> None:
        """Wait up to `seconds` for calls, then cancel them and close the streams."""
        self.begin_draining()
        await asyncio.gather(*(self._finish(client, seconds) for client in self._clients.values()))

    async def _finish(self, client: _Client, seconds: float) -> None:
        await client.channel.drain(seconds)
        # Cancel the calls before the stream ends, so that they can still respond with an error.
        await client.channel.cancel_all()
        client.ended.set()

    def _client(self, request: HttpRequest) -> _Client:
        stream = ResponseChannel(request, limits=self._limits)
        ended = asyncio.Event()

        async def write(message: bytes) -> bool:
            try:
                await stream.write(encode_event(message))
            except ConnectionError:
                ended.set()  # The client does not read.
            return True

        channel = DuplexSession(dispatcher=self._dispatcher, caller=request.caller, write=write)
        return _Client(
            caller=request.caller,
            stream=stream,
            channel=channel,
            ended=ended,
        )

    def _refusal_of_stream(self, request: HttpRequest) -> HttpError | None:
        if request.raw.method != "GET":
            return _only("GET")
        if not request.accepted.event_stream:
            return NO_STREAM_ACCEPTED
        return DRAINING if self._is_draining else None


_MESSAGES: Final = msgspec.msgpack.Decoder(StreamMessage)
_REFUSALS: Final[msgspec.msgpack.Decoder[HttpError | None]] = msgspec.msgpack.Decoder(HttpError | None)


def _only(method: str) -> HttpError:
    return HttpError(status=405, message=f"This path only supports {method}", headers={"Allow": method})
