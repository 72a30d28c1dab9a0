"""The dispatcher: answers every message, of both eras and from every binding.

The dispatcher decodes, chooses the era, takes the catalog once and finds the method, which `run_method` runs. The
pure parts are elsewhere (envelope, lifecycle, results); here is their order.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final

from gateway.access.identity import Identity
from gateway.catalog.caller_catalogs import CallerCatalogs
from gateway.catalog.store import CatalogStore
from gateway.errors import ErrorCode, RpcError
from gateway.events import Events
from gateway.executors.shared_services import Services
from gateway.json_types import JsonObject
from gateway.limits.concurrency import ConcurrencyLimiter
from gateway.limits.rate_limiter import RateLimiter
from gateway.protocol import message_log, results
from gateway.protocol.call.call import Call, ServerState, open_call
from gateway.protocol.call.input_requests.request_state import RequestStateSigner
from gateway.protocol.call.progress import REPEAT_AFTER
from gateway.protocol.envelope import is_modern, open_envelope
from gateway.protocol.exchange import Binding, Exchange, Reply
from gateway.protocol.in_flight import InFlight
from gateway.protocol.list_pages import Cursors, ListPages
from gateway.protocol.method_runner import run_method
from gateway.protocol.methods import lifecycle
from gateway.protocol.methods.subscriptions import TaskNotifications
from gateway.protocol.methods.table import METHODS, check_method
from gateway.protocol.notifier import ChangeNotifier, ReplicaAgreement, nothing
from gateway.protocol.served_views import ServedViews
from gateway.protocol.session import Session
from gateway.protocol.tasks import task_calls
from gateway.state.keys import SigningKeys
from gateway.state.redis_rates import RedisRates
from gateway.state.redis_semaphores import RedisSemaphores
from gateway.state.used_request_states import UsedStates
from gateway.tasks.runner import TaskChanged, TaskProgressed, TaskRunner
from gateway.tasks.store import MemoryTaskStore, TaskStore
from gateway.tasks.task import Ending, TaskRun
from gateway.telemetry.observer import InteractionObserver, Observer
from gateway.telemetry.trace import Trace, TraceContext, untraced
from gateway.wire import headers, jsonrpc, meta
from gateway.wire.jsonrpc import Batch, InvalidMessageError, Message, Notification, Request, Response
from gateway.wire.revisions import LATEST_MODERN, V2025_03_26, Era

Received = Message | InvalidMessageError
"""What a binding has read: a message, or why it is none."""

MAX_DEPTH: Final = 64
"""How deep a message's JSON may nest, unless the file says otherwise (`limits.request_depth`)."""
_CALL_TOOL: Final = "tools/call"
_STREAMABLE_HTTP: Final = Binding.STREAMABLE_HTTP
_MODERN: Final = Era.MODERN
_LEGACY: Final = Era.LEGACY
"""Looked up here: a member of an enumeration costs as much as a call."""
_MAX_IMMEDIATE: Final = 64 * 1024
"""Bytes of a request that may be answered at once: what it makes is shaped in milliseconds."""
_NOTHING: Final = Reply(body=None, status=202)
_CANCELLED: Final = Reply(body=None)
"""The answer to a request that its sender has cancelled."""
_STOPPED: Final = "The server stopped before this was done"


class Dispatcher:
    """Answers messages of both eras from the store's current catalog."""

    def __init__(  # noqa: PLR0913 - what the rooms hand over
        self,
        *,
        store: CatalogStore,
        services: Services,
        keys: SigningKeys,
        used_states: UsedStates | None = None,
        repeat_after: timedelta = REPEAT_AFTER,
        max_depth: int = MAX_DEPTH,
        observers: Sequence[Observer] = (),
        observers_of_all: Sequence[Observer] = (),
        trace: Callable[[TraceContext | None], Trace] = untraced,
        interaction_observer: InteractionObserver | None = None,
        tasks: TaskStore | None = None,
        clock: Callable[[], float] = time.time,
        events: Events | None = None,
        agreement: ReplicaAgreement | None = None,
        upstreams_watch: Callable[[], Awaitable[None]] = nothing,
        shared_rates: RedisRates | None = None,
        semaphores: RedisSemaphores | None = None,
    ) -> None:
        """Serve nothing yet.

        Args:
            store: holds the catalog.
            services: what executors borrow.
            keys: sign cursors and states.
            used_states: remembers which states were used; None: as long as the dispatcher lives.
            repeat_after: how long a call may be silent whose caller wants progress.
            max_depth: how deep a message's JSON may nest.
            observers: are told of calls.
            observers_of_all: are told of every request of a method, calls among them.
            trace: makes the place of a call in the trace that its request came with.
            interaction_observer: is told what calls ask their clients.
            tasks: keeps tasks; None: memory.
            clock: says when tasks end.
            events: told of sessions and tasks; None: nobody is.
            agreement: of the replicas; None: there is one process.
            upstreams_watch: waits, not for long, until upstreams report updates of what is watched.
            shared_rates: the rate limits' counts of all replicas; None: there is one process.
            semaphores: the running calls of all replicas; None: there is one process.
        """
        events = events or Events()
        cursors = Cursors(keys)
        self.store: Final = store
        self._max_depth: Final = max_depth
        parts = CallerCatalogs()
        self.views: Final = ServedViews(store, parts)
        self._is_stopping = False
        self.notifier: Final = ChangeNotifier(
            parts, events=events, agreement=agreement, upstreams_watch=upstreams_watch
        )
        store.subscribe(self.notifier.catalog_changed)
        self.concurrency: Final = ConcurrencyLimiter(shared=semaphores)
        self.rates: Final = RateLimiter(shared=shared_rates)
        store_of_tasks = MemoryTaskStore(clock=clock) if tasks is None else tasks
        self.tasks: Final = TaskRunner(store_of_tasks, work=self._rerun, events=events, clock=clock)
        self.task_notifications: Final = TaskNotifications(self.notifier, clock=clock)
        events.subscribe(TaskChanged, lambda event: self.task_notifications.task_changed(event.task))
        events.subscribe(TaskProgressed, lambda event: self.task_notifications.task_changed(event.task))
        self._server: Final = ServerState(
            services=services,
            max_depth=max_depth,
            concurrency=self.concurrency,
            cursors=cursors,
            pages=ListPages(cursors),
            notifier=self.notifier,
            store=store,
            trace=trace,
            is_traced=trace is not untraced,
            state_signer=RequestStateSigner(keys, used=used_states),
            rate_limiter=self.rates,
            interaction_observer=interaction_observer,
            tasks=self.tasks,
            observers=(*observers_of_all, *observers),
            observers_of_all=tuple(observers_of_all),
            repeat_after=repeat_after,
        )

    async def _rerun(self, run: TaskRun) -> Ending:
        return await task_calls.rerun(run, self._server, catalog_for=self.views.catalog_for)

    def decode(self, body: bytes) -> Received:
        """Read a message, for a binding that must know what it is before it can make its exchange."""
        try:
            return jsonrpc.decode(body, max_depth=self._max_depth, limit="limits.request_depth")
        except InvalidMessageError as error:
            return error

    def is_immediate(self, message: Received, *, size: int) -> bool:
        """Tell whether a request of `size` bytes is answered without a wait, so that it needs no task of its own.

        Lists are such requests, and calls of tools whose answer stands in the file and in their arguments.
        """
        if not isinstance(message, Request) or size > _MAX_IMMEDIATE:
            return False
        catalog, name = self.store.current, message.params.get("name")
        if self.rates.shared is not None and catalog.limits.rate_limit is not None:
            return False  # the store is asked
        if message.method != _CALL_TOOL:
            method = METHODS.get(message.method)
            return method is not None and method.is_immediate
        tool = catalog.tools.get(name) if isinstance(name, str) else None
        if tool is None or not tool.is_immediate or (self.rates.shared is not None and tool.rate_limit is not None):
            return False
        return catalog.limits.of_caller is None and catalog.limits.of_all is None

    async def answer(
        self,
        message: bytes | Received,
        exchange: Exchange,
        session: Session | None = None,
        *,
        in_flight: InFlight | None = None,
    ) -> Reply:
        """Answer a message, whatever it is; raises nothing but CancelledError.

        A request that its sender cancels is answered with nothing, and one that the end of the daemon cuts short with
        an error. `initialize` without a session opens one: see `Reply.session`.

        Args:
            message: as it came, or as `decode` has read it.
            exchange: who sent it, and the way back.
            session: the legacy session that it came on, if there is one.
            in_flight: the modern requests of a channel on which a notification cancels them; None over HTTP.
        """
        if isinstance(message, bytes):
            message = self.decode(message)
        # Once for each message: the entries of a batch come back here with an exchange that is logged already.
        if message_log.is_on() and not isinstance(exchange, message_log.LoggedExchange):
            with message_log.new_log_context():
                logged = message_log.LoggedExchange(exchange)
                logged.received(message, self.store.current)
                return logged.answered(await self.answer(message, logged, session, in_flight=in_flight))
        if isinstance(message, Batch):
            return await self._answer_batch(message, exchange, session)
        call = self._open(message, exchange, session, in_flight)
        if not isinstance(call, Call):
            return call
        if call.session is not None:
            in_flight = call.session.in_flight
        try:
            serving = run_method(call)
            return await serving if in_flight is None else await in_flight.run(call.request_id, serving) or _CANCELLED
        except RpcError as error:  # an id that is in use
            failure, status = error, 400
        except asyncio.CancelledError:
            if not self._outlives_cancellation():
                raise
            failure, status = RpcError(ErrorCode.INTERNAL_ERROR, _STOPPED), 503
        return results.error_reply(failure, request_id=call.request_id, revision=call.revision, status=status)

    def _outlives_cancellation(self) -> bool:
        """Say whether the current task, which was cancelled, answers all the same, and make it go on if so."""
        task = asyncio.current_task()
        if not self._is_stopping or task is None:
            return False
        task.uncancel()  # what follows is written under timeouts, which look at this
        return True

    def stop(self) -> None:
        """Answer from now on whatever is cancelled: it is the daemon that ends, and the way back may still be open."""
        self._is_stopping = True

    def identity_changed(self, session: Session, identity: Identity) -> None:
        """Note that a session's client has shown a credential, or what its own allows has changed."""
        if identity != session.identity:
            self.notifier.identity_changed(session, identity, self.store.current)

    def restore_session(self, session: Session, *, told: Mapping[str, str]) -> None:
        """Go on with a session that another process began; `told` has the lists as its client knows them."""
        self.notifier.restore_session(session, self.store.current, told=told)

    def told(self, session: Session, *, before: Mapping[str, str]) -> dict[str, str]:
        """The fingerprints of the lists as a session's client knows them now, if it knew those `before`."""
        return self.notifier.told(session, self.store.current, before=before)

    @property
    def server_info(self) -> JsonObject:
        """The `Implementation` that clients are told now."""
        return self.store.current.server_info

    def _open(
        self,
        message: Request | Notification | Response | InvalidMessageError,
        exchange: Exchange,
        session: Session | None,
        in_flight: InFlight | None,
    ) -> Call | Reply:
        """Choose the era, by the message itself: what came before on a connection says nothing about it."""
        if isinstance(message, InvalidMessageError):
            revision = None if session is None else session.revision
            return results.error_reply(message, request_id=None, revision=revision)
        caller = exchange.caller
        # 2026-07-28 basic/transports/streamable-http, "Request Metadata": only there do header fields mirror the body.
        fields = caller.headers if caller.binding is _STREAMABLE_HTTP else None
        # Before the era is known: a notification need not carry the metadata that would tell it.
        if not isinstance(message, Request) and in_flight is not None:
            _cancel_if_asked(message, in_flight)
        if is_modern(message, version_header=None if fields is None else fields.get(meta.HEADER_PROTOCOL_VERSION)):
            return self._open_modern(message, exchange, fields)
        if session is None:
            return self._begin(message, exchange)
        # Nearly always the same object: to compare its fields would cost every request.
        if caller.identity is not session.identity:
            self.identity_changed(session, caller.identity)
        return self._open_legacy(message, exchange, session)

    def _open_modern(
        self,
        message: Request | Notification | Response,
        exchange: Exchange,
        fields: Mapping[str, str] | None,
    ) -> Call | Reply:
        """Check a message of 2026-07-28.

        1. a response is refused (-32600, 400), a notification is taken and ignored (202)
        2. the envelope: see `open_envelope`
        3. over HTTP, `Mcp-Method` is the method: -32020
        4. the method exists in this era: -32601 (404); the client has declared the extension it belongs to: -32021
        5. over HTTP, `Mcp-Name` is the name: -32020
        6. the method's own checks follow
        """
        if not isinstance(message, Request):
            if isinstance(message, Notification):
                return _NOTHING
            error = RpcError(ErrorCode.INVALID_REQUEST, "Responses are not sent in this revision")
            return results.error_reply(error, request_id=None, revision=LATEST_MODERN)
        envelope = open_envelope(message, headers=fields)
        if isinstance(envelope, RpcError):
            return results.error_reply(envelope, request_id=message.id, revision=LATEST_MODERN, status=400)
        try:
            if fields is not None:
                headers.check_method(message.method, fields)
            catalog = self.views.catalog_for(exchange.caller)
            check_method(message.method, _MODERN, envelope)
            if fields is not None:
                headers.check_name(message.method, message.params, fields)
            return open_call(message, terms=envelope, catalog=catalog, exchange=exchange, server=self._server)
        except RpcError as error:
            return results.error_reply(error, request_id=message.id, revision=envelope.revision)

    def _begin(self, message: Request | Notification | Response, exchange: Exchange) -> Reply:
        """Answer a legacy message that came on no session: `initialize` opens one, `ping` is answered.

        MCP 2025-11-25 basic/lifecycle, "Initialization": nothing but pings comes before.
        """
        match message:
            case Request(method="initialize"):
                return self._open_session(message, exchange)
            case Request(method="ping"):
                return Reply(body=jsonrpc.encode_result(message.id, b"{}"))
            case Request():
                error = RpcError(ErrorCode.INVALID_REQUEST, "A session begins with `initialize`")
                return results.error_reply(error, request_id=message.id, revision=None)
            case _:
                return _NOTHING  # notifications and responses are never answered

    def _open_session(self, request: Request, exchange: Exchange) -> Reply:
        try:
            catalog = self.views.catalog_for(exchange.caller)
            session = lifecycle.open_session(
                request.params, identity=exchange.caller.identity, view=exchange.caller.view
            )
        except RpcError as error:
            return results.error_reply(error, request_id=request.id, revision=None, status=400)
        self.notifier.add_session(session)
        result = lifecycle.initialize_result(catalog, session.revision)
        return Reply(body=jsonrpc.encode_result(request.id, jsonrpc.encode(result)), session=session)

    def _open_legacy(
        self, message: Request | Notification | Response, exchange: Exchange, session: Session
    ) -> Call | Reply:
        if not isinstance(message, Request):
            if isinstance(message, Response):
                session.take_answer(message)
            else:
                self._take_notification(message, session)
            return _NOTHING
        try:
            catalog = self.views.catalog_for(exchange.caller)
            check_method(message.method, _LEGACY, session)
            return open_call(
                message, terms=session, catalog=catalog, exchange=exchange, server=self._server, session=session
            )
        except RpcError as error:
            status = 400 if error.code == ErrorCode.INVALID_REQUEST else None  # `initialize` again
            return results.error_reply(error, request_id=message.id, revision=session.revision, status=status)

    def _take_notification(self, notification: Notification, session: Session) -> None:
        match notification.method:
            case "notifications/initialized":
                session.initialize()
            case "notifications/roots/list_changed":
                self.notifier.roots_changed(session.id)
            case "notifications/cancelled":
                session.in_flight.cancel(notification.params.get("requestId"))
            case _:
                pass  # unknown notifications are ignored (JSON-RPC 2.0 §4.1)

    async def _answer_batch(self, batch: Batch, exchange: Exchange, session: Session | None) -> Reply:
        """2025-03-26 basic/index, "Batching": each entry fails by itself; one array answers them all."""
        if session is None or session.revision != V2025_03_26:
            revision = None if session is None else session.revision
            why = "A session begins with `initialize`" if revision is None else f"Revision {revision} has no batches"
            return results.error_reply(RpcError(ErrorCode.INVALID_REQUEST, why), request_id=None, revision=revision)

        async def answer(entry: Request | Notification | Response | InvalidMessageError) -> Reply:
            with message_log.new_log_context():
                return await self.answer(entry, exchange, session)

        # A task each, so that `notifications/cancelled` can end one entry and leave the others.
        answering = [asyncio.ensure_future(answer(entry)) for entry in batch.entries]
        try:
            replies = await asyncio.gather(*answering)
        except asyncio.CancelledError:
            if not self._outlives_cancellation():
                raise
            await asyncio.wait(answering)  # `gather` has cancelled them, and each answers that
            replies = [each.result() for each in answering if not each.cancelled()]
        bodies = [reply.body for reply in replies if reply.body is not None]
        # JSON-RPC 2.0 §6: where no entry is answered there is no answer at all, not an empty array.
        return Reply(body=b"[%b]" % b",".join(bodies)) if bodies else _NOTHING


def _cancel_if_asked(message: Notification | Response, in_flight: InFlight) -> None:
    if isinstance(message, Notification) and message.method == "notifications/cancelled":
        in_flight.cancel(message.params.get("requestId"))
