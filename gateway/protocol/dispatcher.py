"""From a message to its reply: choose the door, take the catalog once, look the method up, and catch what falls.

The pure parts are elsewhere (envelope, handshake, results); here is the order in which they are asked.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

import structlog

from gateway.access.identity import Identity
from gateway.access.rates import Rates
from gateway.access.slots import Slots
from gateway.catalog.store import CatalogStore
from gateway.catalog.views import Views
from gateway.errors import ErrorCode, OverLimitError, RpcError
from gateway.executors.invocation import AwaitingInput
from gateway.executors.services import Services
from gateway.executors.trace import Trace, TraceContext, untraced
from gateway.json_types import Json, JsonObject
from gateway.protocol import handshake, headers, jsonrpc, results
from gateway.protocol.announcements import Announcements
from gateway.protocol.calls import Observer, Observers
from gateway.protocol.cursors import Cursors
from gateway.protocol.envelope import Envelope, Rejection, open_envelope
from gateway.protocol.exchange import Binding, Exchange, Reply
from gateway.protocol.jsonrpc import Batch, InvalidMessageError, Message, Notification, Request, RequestId, Response
from gateway.protocol.list_pages import ListPages
from gateway.protocol.message_log import numbered, spoken
from gateway.protocol.methods import lifecycle, resources
from gateway.protocol.methods.table import METHODS, Method
from gateway.protocol.progress import SILENCE, Progress
from gateway.protocol.request import Nobody, RequestContext, Runtime, Witness, trace_of
from gateway.protocol.sealed_state import StateSeal
from gateway.protocol.session import Session
from gateway.protocol.versions import V2025_03_26, V2026_07_28, Era

log: Final = structlog.get_logger(__name__)

_NOTHING: Final = Reply(body=None, status=202)


class Dispatcher:
    """Answers messages of both eras from the store's current catalog. Its methods raise nothing but CancelledError."""

    def __init__(  # noqa: PLR0913 - what the rooms hand over
        self,
        *,
        store: CatalogStore,
        services: Services,
        secret_key: bytes,
        silence: timedelta = SILENCE,
        observers: Sequence[Observer] = (),
        observers_of_all: Sequence[Observer] = (),
        trace: Callable[[TraceContext | None], Trace] = untraced,
        witness: Witness | None = None,
    ) -> None:
        """Serve nothing yet.

        Args:
            store: holds the catalog.
            services: what executors borrow.
            secret_key: signs cursors and states.
            silence: how long a call may be silent whose caller wants progress.
            observers: are told of calls.
            observers_of_all: are told of every request of a method, calls among them.
            trace: makes the place of a call in the trace that its request came with.
            witness: is told of what calls do beside.
        """
        self._observers: Final = Observers([*observers_of_all, *observers])
        self._observers_of_all: Final = Observers(observers_of_all)
        cursors = Cursors(secret_key)
        self._store: Final = store
        self._silence: Final = silence
        self._views: Final = Views()
        self.announcements: Final = Announcements(self._views)
        store.subscribe(self.announcements.catalog_changed)
        self.slots: Final = Slots()
        self.rates: Final = Rates()
        self._runtime: Final = Runtime(
            services=services,
            slots=self.slots,
            cursors=cursors,
            pages=ListPages(cursors),
            announcements=self.announcements,
            store=store,
            trace=trace,
            read=resources.read,
            seal=StateSeal(secret_key),
            rates=self.rates,
            witness=witness or Nobody(),
        )

    async def answer_modern(self, message: Request | Notification | Response, exchange: Exchange) -> Reply:
        """Answer a message for which `envelope.is_modern` holds.

        The ladder:

        1. a response is refused (-32600, 400), a notification is taken and ignored (202)
        2. the envelope: see `open_envelope`
        3. over HTTP, `Mcp-Method` is the method: -32020
        4. the method exists in this era: -32601 (404)
        5. over HTTP, `Mcp-Name` is the name: -32020
        6. the method's own checks
        """
        with spoken(message, exchange) as said:
            return said.answered(await self._answer_modern(message, said.exchange))

    async def _answer_modern(self, message: Request | Notification | Response, exchange: Exchange) -> Reply:
        match message:
            case Response():
                error = RpcError(ErrorCode.INVALID_REQUEST, "Responses are not sent in this revision")
                return results.error_reply(error, request_id=None, revision=V2026_07_28)
            case Notification():
                return _NOTHING
        fields = exchange.caller.headers if exchange.caller.binding is Binding.STREAMABLE_HTTP else None
        envelope = open_envelope(message, headers=fields)
        if isinstance(envelope, Rejection):
            return results.error_reply(
                envelope.error, request_id=message.id, revision=V2026_07_28, status=envelope.status
            )
        try:
            if fields is not None:
                headers.check_method(message.method, fields)
            _check_method(message.method, Era.MODERN)
            if fields is not None:
                headers.check_name(message.method, message.params, fields)
        except RpcError as error:
            return results.error_reply(error, request_id=message.id, revision=envelope.revision)
        return await self._answer(self._modern_context(message, envelope, exchange), message.method)

    async def open_session(self, request: Request, exchange: Exchange) -> tuple[Session | None, Reply]:
        """Answer `initialize`. The session is None if the request was refused."""
        with spoken(request, exchange) as said:
            session, reply = self._open_session(request, said.exchange)
            return session, said.answered(reply)

    def _open_session(self, request: Request, exchange: Exchange) -> tuple[Session | None, Reply]:
        try:
            session = handshake.open_session(request.params, identity=exchange.caller.identity)
        except RpcError as error:
            return None, results.error_reply(error, request_id=request.id, revision=None, status=400)
        self.announcements.join(session)
        result = lifecycle.initialize_result(self._store.current, session.revision)
        return session, Reply(body=jsonrpc.encode_result(request.id, jsonrpc.encode(result)))

    async def answer_legacy(self, message: Message, session: Session, exchange: Exchange) -> Reply:
        """Answer a message of a session. A request that its sender cancels is answered with nothing."""
        with spoken(message, exchange) as said:
            self.identified(session, exchange.caller.identity)
            return said.answered(await self._answer_legacy(message, session, said.exchange))

    def identified(self, session: Session, identity: Identity) -> None:
        """A session's client has shown a credential, or what its own allows has changed."""
        if identity != session.identity:
            self.announcements.identified(session, identity, self._store.current)

    async def _answer_legacy(self, message: Message, session: Session, exchange: Exchange) -> Reply:
        match message:
            case Request():
                return await self._answer_legacy_request(message, session, exchange)
            case Notification():
                _take_notification(message, session)
                return _NOTHING
            case Response():
                session.take_answer(message)
                return _NOTHING
            case Batch():
                return await self._answer_batch(message.entries, session, exchange)

    def reject(self, error: RpcError, *, request_id: RequestId | None = None, revision: str | None = None) -> Reply:
        """The reply to what could not be read or routed."""
        return results.error_reply(error, request_id=request_id, revision=revision)

    async def _answer_legacy_request(self, request: Request, session: Session, exchange: Exchange) -> Reply:
        try:
            _check_method(request.method, Era.LEGACY)
            context = self._legacy_context(request, session, exchange)
            return await session.in_flight.run(request.id, self._answer(context, request.method))
        except RpcError as error:
            status = 400 if error.code == ErrorCode.INVALID_REQUEST else None  # an id that is in use
            return results.error_reply(error, request_id=request.id, revision=session.revision, status=status)

    async def _answer_batch(
        self,
        entries: Sequence[Request | Notification | Response | InvalidMessageError],
        session: Session,
        exchange: Exchange,
    ) -> Reply:
        """2025-03-26 basic/index, "Batching": each entry fails by itself; one array answers them all."""
        if session.revision != V2025_03_26:
            error = RpcError(ErrorCode.INVALID_REQUEST, f"Revision {session.revision} has no batches")
            return results.error_reply(error, request_id=None, revision=session.revision)

        async def answer(entry: Request | Notification | Response | InvalidMessageError) -> Reply:
            if isinstance(entry, InvalidMessageError):
                return results.error_reply(entry, request_id=None, revision=session.revision)
            with numbered():
                return await self._answer_legacy(entry, session, exchange)

        replies = await asyncio.gather(*map(answer, entries))
        bodies = [reply.body for reply in replies if reply.body is not None]
        return Reply(body=b"[%b]" % b",".join(bodies)) if bodies else _NOTHING

    async def _answer(self, context: RequestContext, method: str) -> Reply:
        """Run a method that exists, and turn whatever comes out of it into a reply."""
        called = METHODS[method]
        with (self._observers if called.is_call else self._observers_of_all).watch(context, method) as watch:
            try:
                try:
                    result = await self._result(context, called, method)
                except AwaitingInput as waiting:
                    result = waiting.result
                except OverLimitError as error:
                    watch.over_limit()
                    result = called.refused(error, context)
                reply = Reply(body=jsonrpc.encode_result(context.request_id, _encoded(result, context)))
            except RpcError as error:
                watch.failed(error)
                return results.error_reply(
                    _masked(error, context), request_id=context.request_id, revision=context.revision
                )
            except Exception:  # Boundary: our bug must cost its caller an error, and nobody else anything.
                log.exception("request failed", method=method, correlation_id=watch.call.id)
                hidden = RpcError(ErrorCode.INTERNAL_ERROR, f"Internal error (correlation id {watch.call.id})")
                watch.failed(hidden)
                return results.error_reply(hidden, request_id=context.request_id, revision=context.revision)
            watch.answered(result)
            return reply

    async def _result(self, context: RequestContext, method: Method, name: str) -> JsonObject | bytes:
        if (limit := context.catalog.limits.rate_limit) is not None:
            caller = context.exchange.caller.payer
            if method.is_call:
                self.rates.spend("limits.rate_limit", limit, caller=caller)
            elif method.is_list and context.params.get("cursor") is None:  # a long list has many pages, and is one
                self.rates.spend(f"limits.rate_limit of {name}", limit, caller=caller)
        token = context.progress_token
        if token is None or not method.is_call:
            return await method.handler(context, self._runtime)
        progress = Progress(
            token,
            context.exchange,
            revision=context.revision,
            silence=self._silence,
            tally=self.announcements.tally,
        )
        async with progress:
            return await method.handler(replace(context, progress=progress), self._runtime)

    def _modern_context(self, request: Request, envelope: Envelope, exchange: Exchange) -> RequestContext:
        return RequestContext(
            request_id=request.id,
            params=request.params,
            revision=envelope.revision,
            client_info=envelope.client_info,
            client_capabilities=envelope.client_capabilities,
            catalog=self._views.of(self._store.current, exchange.caller.identity.scopes),
            exchange=exchange,
            envelope_log_level=envelope.log_level,
            trace=trace_of(request.params, exchange),
        )

    def _legacy_context(self, request: Request, session: Session, exchange: Exchange) -> RequestContext:
        return RequestContext(
            request_id=request.id,
            params=request.params,
            revision=session.revision,
            client_info=session.client_info,
            client_capabilities=session.capabilities,
            catalog=self._views.of(self._store.current, exchange.caller.identity.scopes),
            exchange=exchange,
            session=session,
            trace=trace_of(request.params, exchange),
        )


def _check_method(method: str, era: Era) -> None:
    if method == "initialize" and era is Era.LEGACY:
        raise RpcError(ErrorCode.INVALID_REQUEST, "This session is initialized already")
    found = METHODS.get(method)
    if found is None or era not in found.eras:
        raise RpcError(ErrorCode.METHOD_NOT_FOUND, f"Method not found: {method}")


def _take_notification(notification: Notification, session: Session) -> None:
    match notification.method:
        case "notifications/initialized":
            session.is_initialized = True
        case "notifications/cancelled":
            session.in_flight.cancel(notification.params.get("requestId"))
        case _:
            pass  # unknown notifications are ignored (JSON-RPC 2.0 §4.1)


def _encoded(result: JsonObject | bytes, context: RequestContext) -> bytes:
    if isinstance(result, bytes):
        return result
    finished: dict[str, Json] = results.complete(dict(result), catalog=context.catalog, revision=context.revision)
    return jsonrpc.encode(finished)


def _masked(error: RpcError, context: RequestContext) -> RpcError:
    """A plugin's protocol error may quote what it was given by the environment."""
    error.message = context.catalog.redactor.text(error.message)
    error.data = context.catalog.redactor.json(error.data)
    return error
