"""Handles all MCP messages: detects the era of each message, selects the catalog, and runs the method."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

from gateway.access.identity import Identity
from gateway.catalog.catalog import CallerCatalogs, Catalog, View
from gateway.catalog.store import CatalogStore
from gateway.errors import ErrorCode, InsufficientScopeError, RpcError
from gateway.events import Events
from gateway.executors.shared_services import Services
from gateway.limits.concurrency import ConcurrencyLimiter
from gateway.limits.rate_limiter import RateLimiter
from gateway.protocol import message_log, results
from gateway.protocol.call.call import Call, ServerState, open_call
from gateway.protocol.call.input_requests.request_state import RequestStateSigner
from gateway.protocol.call.progress import REPEAT_AFTER
from gateway.protocol.envelope import is_modern, open_envelope
from gateway.protocol.exchange import Binding, Caller, Exchange, Reply
from gateway.protocol.list_pages import Cursors, ListPages
from gateway.protocol.methods import lifecycle
from gateway.protocol.methods.table import check_method, run_method
from gateway.protocol.notifier import ChangeNotifier, ReplicaAgreement, nothing
from gateway.protocol.session import InFlight, Session
from gateway.protocol.tasks import task_call
from gateway.protocol.tasks.wire import detailed
from gateway.state.database import StateDatabase
from gateway.state.keys import SigningKeys
from gateway.state.redis_limits import RedisRates, RedisSemaphores
from gateway.state.used_request_states import UsedStates
from gateway.tasks.runner import TaskChanged, TaskProgressed, TaskRunner
from gateway.tasks.sqlite_store import TASKS, SqliteTaskStore
from gateway.tasks.store import TaskStore
from gateway.tasks.task import Ending, Task, TaskRun
from gateway.telemetry.observer import InteractionObserver, Observer
from gateway.telemetry.trace import Trace, TraceContext, untraced
from gateway.wire import headers, jsonrpc, meta
from gateway.wire.jsonrpc import Batch, InvalidMessageError, Message, Notification, Request, Response
from gateway.wire.revisions import LATEST_MODERN, Era, has_batches

Received = Message | InvalidMessageError

MAX_DEPTH: Final = 64
"""The default of `limits.request_depth`."""
_STREAMABLE_HTTP: Final = Binding.STREAMABLE_HTTP
_MODERN: Final = Era.MODERN
_LEGACY: Final = Era.LEGACY
"""A constant, because looking up a member of an enumeration is as slow as a function call."""
_NOTHING: Final = Reply(body=None, status=202)
_CANCELLED: Final = Reply(body=None)
_STOPPED: Final = "The server stopped before the request was finished"


class Dispatcher:
    def __init__(  # noqa: PLR0913 - the parts of a server
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
        """Create a dispatcher.

        `observers` are notified of each call, and `observers_of_all` of each request. `tasks` and `used_states` default
        to stores in memory. `agreement` delays list-change notifications until all replicas have the same lists.
        `upstreams_watch` waits briefly until upstream servers have confirmed subscriptions to watched resources.
        """
        events = events or Events()
        self.store: Final = store
        self._max_depth: Final = max_depth
        parts = CallerCatalogs()
        self.views: Final = ServedViews(store, parts)
        self._is_stopping = False
        self.notifier: Final = ChangeNotifier(
            store, parts, events=events, agreement=agreement, upstreams_watch=upstreams_watch
        )
        self.concurrency: Final = ConcurrencyLimiter(shared=semaphores)
        self.rates: Final = RateLimiter(shared=shared_rates)
        store_of_tasks = SqliteTaskStore(StateDatabase(None, [TASKS]), clock=clock) if tasks is None else tasks
        self.tasks: Final = TaskRunner(store_of_tasks, work=self._rerun, events=events, clock=clock)
        events.subscribe(TaskChanged, lambda event: self.task_changed(event.task))
        events.subscribe(TaskProgressed, lambda event: self.task_changed(event.task))
        self._server: Final = ServerState(
            services=services,
            max_depth=max_depth,
            concurrency=self.concurrency,
            pages=ListPages(Cursors(keys)),
            notifier=self.notifier,
            store=store,
            trace=trace,
            state_signer=RequestStateSigner(keys, used=used_states),
            rate_limiter=self.rates,
            interaction_observer=interaction_observer,
            tasks=self.tasks,
            observers=(*observers_of_all, *observers),
            observers_of_all=tuple(observers_of_all),
            repeat_after=repeat_after,
        )

    async def _rerun(self, run: TaskRun) -> Ending:
        return await task_call.rerun(run, self._server, catalog_for=self.views.catalog_for)

    def decode(self, body: bytes) -> Received:
        try:
            return jsonrpc.decode(body, max_depth=self._max_depth, limit="limits.request_depth")
        except InvalidMessageError as error:
            return error

    async def answer(
        self,
        message: Received,
        exchange: Exchange,
        session: Session | None = None,
        *,
        in_flight: InFlight | None = None,
    ) -> Reply:
        """Handle any message and return the reply. This method raises only CancelledError.

        If the sender cancels a request, the reply has no body. If the daemon stops before the request has finished, the
        reply is an error. `initialize` opens a session (`Reply.session`).

        Args:
            message: the result of `decode`.
            exchange: the sender of the message, and the channel for messages before the response.
            session: the legacy session, if any.
            in_flight: the modern requests that a notification can cancel, or None over HTTP.
        """
        # The entries of a batch already have a logged exchange.
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
        except RpcError as error:  # the id is in use
            failure, status = error, 400
        except asyncio.CancelledError:
            if not self._outlives_cancellation():
                raise
            failure, status = RpcError(ErrorCode.INTERNAL_ERROR, _STOPPED), 503
        return results.error_reply(failure, request_id=call.request_id, revision=call.revision, status=status)

    def _outlives_cancellation(self) -> bool:
        """If the daemon is stopping, uncancel the current task so that it can still respond, and return True."""
        task = asyncio.current_task()
        if not self._is_stopping or task is None:
            return False
        task.uncancel()  # the following writes have timeouts
        return True

    def task_changed(self, task: Task) -> None:
        """Notify the subscribers of a task (ext-tasks, "Task Status Notifications")."""
        if subscriptions := self.notifier.of_task(task.id):
            state = detailed(task, now=self.tasks.clock())
            for subscription in subscriptions:
                subscription.tell_task(task, state)

    def stop(self) -> None:
        self._is_stopping = True

    def _open(
        self,
        message: Request | Notification | Response | InvalidMessageError,
        exchange: Exchange,
        session: Session | None,
        in_flight: InFlight | None,
    ) -> Call | Reply:
        """Return the call to run, or a reply. The era is detected per message, because connections can mix eras."""
        if isinstance(message, InvalidMessageError):
            revision = None if session is None else session.revision
            return results.error_reply(message, request_id=None, revision=revision)
        caller = exchange.caller
        # MCP 2026-07-28 basic/transports/streamable-http, "Request Metadata": header fields mirror the body.
        fields = caller.headers if caller.binding is _STREAMABLE_HTTP else None
        # Handle cancellation before choosing the era, because notifications may lack the modern metadata.
        if not isinstance(message, Request) and in_flight is not None:
            _cancel_if_asked(message, in_flight)
        if is_modern(message, version_header=None if fields is None else fields.get(meta.HEADER_PROTOCOL_VERSION)):
            return self._open_modern(message, exchange, fields)
        if session is None:
            return self._begin(message, exchange)
        # Compare by identity, because the caller's identity is usually the same object.
        if caller.identity is not session.identity:
            self.notifier.identity_changed(session, caller.identity)
        return self._open_legacy(message, exchange, session)

    def _open_modern(
        self,
        message: Request | Notification | Response,
        exchange: Exchange,
        fields: Mapping[str, str] | None,
    ) -> Call | Reply:
        """Check a message of revision 2026-07-28 in this order.

        1. a response is an error (-32600, 400), a notification is ignored (202)
        2. the envelope must be valid (`open_envelope`)
        3. over HTTP, `Mcp-Method` must match the method: -32020
        4. the method must exist in this era: -32601 (404), and the client must have declared its extension: -32021
        5. over HTTP, `Mcp-Name` must match the name: -32020
        6. the request must pass the checks of `open_call`
        """
        if not isinstance(message, Request):
            if isinstance(message, Notification):
                return _NOTHING
            error = RpcError(ErrorCode.INVALID_REQUEST, "Clients cannot send responses in this revision")
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
        """Handle a legacy message before `initialize` (MCP 2025-11-25 basic/lifecycle, "Initialization")."""
        match message:
            case Request(method="initialize"):
                return self._open_session(message, exchange)
            case Request(method="ping"):
                return Reply(body=jsonrpc.encode_result(message.id, b"{}"))
            case Request():
                error = RpcError(ErrorCode.INVALID_REQUEST, "Send `initialize` first")
                return results.error_reply(error, request_id=message.id, revision=None)
            case _:
                return _NOTHING  # notifications and responses have no response

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
            status = 400 if error.code == ErrorCode.INVALID_REQUEST else None  # a second `initialize`
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
        if session is None or not has_batches(session.revision):
            revision = None if session is None else session.revision
            why = "Send `initialize` first" if revision is None else f"Revision {revision} has no batches"
            return results.error_reply(RpcError(ErrorCode.INVALID_REQUEST, why), request_id=None, revision=revision)

        async def answer(entry: Request | Notification | Response | InvalidMessageError) -> Reply:
            with message_log.new_log_context():
                return await self.answer(entry, exchange, session)

        # One task per entry, so that `notifications/cancelled` can cancel a single entry.
        answering = [asyncio.ensure_future(answer(entry)) for entry in batch.entries]
        try:
            replies = await asyncio.gather(*answering)
        except asyncio.CancelledError:
            if not self._outlives_cancellation():
                raise
            await asyncio.wait(answering)  # `gather` has cancelled the tasks, which respond with errors
            replies = [each.result() for each in answering if not each.cancelled()]
        bodies = [reply.body for reply in replies if reply.body is not None]
        # JSON-RPC 2.0 §6: no array is sent if there are no responses.
        return Reply(body=b"[%b]" % b",".join(bodies)) if bodies else _NOTHING


def _cancel_if_asked(message: Notification | Response, in_flight: InFlight) -> None:
    if isinstance(message, Notification) and message.method == "notifications/cancelled":
        in_flight.cancel(message.params.get("requestId"))


class ServedViews:
    def __init__(self, store: CatalogStore, parts: CallerCatalogs) -> None:
        self._store: Final = store
        self._parts: Final = parts

    def view(self, name: str) -> View | None:
        return self._store.current.views.get(name)

    def parts(self) -> Iterator[tuple[str, Catalog]]:
        """Yield the name and the catalog of each view, as seen by callers with all scopes."""
        catalog = self._store.current
        yield from ((name, self._parts.of(catalog, None, view=name)) for name in catalog.views)

    def admits(self, view: str | None, identity: Identity) -> bool:
        """Return whether the identity can use the view. The whole catalog (None) is always allowed."""
        found = None if view is None else self.view(view)
        return view is None or (found is not None and identity.holds(found.access.scopes))

    def catalog_for(self, caller: Caller) -> Catalog:
        """Return the catalog that a caller can see. Raise RpcError if the caller cannot use the view."""
        catalog, name = self._store.current, caller.view
        if name is not None and not self.admits(name, caller.identity):
            view = self.view(name)
            if view is not None and view.access.is_visible:
                raise InsufficientScopeError(view.access.scopes)
            # Hidden and missing views cause the same error, so that callers cannot detect hidden views.
            raise RpcError(ErrorCode.INVALID_REQUEST, f"The view {name!r} does not exist")
        scopes = caller.identity.scopes
        return catalog if name is None and scopes is None else self._parts.of(catalog, scopes, view=name)
