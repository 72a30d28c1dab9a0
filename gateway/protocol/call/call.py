"""One call: a request of either era while it is served, and the state of the server that serves it.

Methods, the runner and observers (`telemetry.observer`) take this one value. What a plain call does not use, such as
its trace, is worked out when somebody asks for it.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final, Protocol

import msgspec

from gateway.access.caller_facts import facts_of
from gateway.catalog import search_tools
from gateway.catalog.catalog import Catalog
from gateway.catalog.primitives import Primitive
from gateway.catalog.store import CatalogStore
from gateway.config.secrets.redactor import Redactor
from gateway.errors import ErrorCode, RpcError
from gateway.executors.shared_services import Services
from gateway.json_types import Json, JsonObject, empty
from gateway.limits.concurrency import ConcurrencyLimiter
from gateway.limits.rate_limiter import RateLimiter
from gateway.plugin import Task as TaskFacts
from gateway.protocol.call.input_requests.request_state import RequestStateSigner
from gateway.protocol.call.input_requests.requester import InputRequester
from gateway.protocol.call.progress import Progress, ProgressReporter
from gateway.protocol.call.send_queue import SendQueue
from gateway.protocol.exchange import Binding, Caller, Exchange
from gateway.protocol.list_pages import Cursors, ListPages
from gateway.protocol.message_log import described_params
from gateway.protocol.notifier import ChangeNotifier
from gateway.protocol.session import Session
from gateway.tasks.runner import TaskRunner
from gateway.telemetry.log_context import current_call_id
from gateway.telemetry.observer import InteractionObserver, Observer, ProgressReport, Wait
from gateway.telemetry.trace import TRACEPARENT, Trace, TraceContext, read_trace
from gateway.wire import jsonrpc, meta
from gateway.wire.jsonrpc import Request, RequestId
from gateway.wire.revisions import MODERN, Era

_NO_META: Final = empty()
_MAX_NOTED: Final = 20
"""Waits, and reports of progress, that are noted of one call."""
_MAX_MESSAGE_LENGTH: Final = 1000
_SHORTEST_WAIT_SECONDS: Final = 0.001


class ClientTerms(Protocol):
    """A client's own statements, which hold for its session, or in the modern era for one request."""

    @property
    def revision(self) -> str: ...
    @property
    def client_info(self) -> JsonObject: ...
    @property
    def capabilities(self) -> JsonObject: ...
    @property
    def log_level(self) -> str | None:
        """The lowest level of log messages that the client asked for; None if it asked for none."""


class TaskOfCall(Protocol):
    """The task that a call is, or may become."""

    @property
    def is_rerun(self) -> bool:
        """Whether its request was answered long ago."""

    @property
    def facts(self) -> TaskFacts | None:
        """The task; None as long as there is none."""

    @property
    def seconds_left(self) -> float:
        """Seconds for which the task is still kept."""

    def open_requester(self, call: "Call", *, definition: str) -> InputRequester:
        """Return the requester for the run of `call`; `definition` is the version of its tool."""


class Call(msgspec.Struct, eq=False, kw_only=True):
    """A request with its sender, its revision and its catalog, which was taken once and stays the same.

    `open_call` makes it.
    """

    id: str
    """Stands in every log line, span and audit record of the call, and in the error of an internal failure."""
    request_id: RequestId
    method: str
    params: JsonObject
    meta: JsonObject
    """The request's `_meta`."""
    kind: str
    """`tool`, `resource` or `prompt`; empty where the request is no call."""
    target: Primitive | None
    """What is called, or completed for; None if the caller knows none such, or the request is no call."""
    name: str | None
    """The target's key in the file."""
    revision: str
    terms: ClientTerms
    catalog: Catalog
    exchange: Exchange
    caller: Caller
    server: "ServerState"
    session: Session | None
    """None in the modern era."""
    session_id: str | None
    is_wrapped: bool
    """Whether it came as a call of `call_tool`, so that header fields mirror nothing of it."""
    progress: ProgressReporter | None = None
    """Reports to a sender that sent a progress token, or to the task that the call is."""
    task: TaskOfCall | None = None
    waits: tuple[Wait, ...] = ()
    reported: tuple[ProgressReport, ...] = ()
    # A boolean until somebody asks: None is an answer, too.
    _trace: TraceContext | bool | None = False
    _caller_facts: JsonObject | None = None
    _send_queue: SendQueue | None = None

    @property
    def send_queue(self) -> SendQueue:
        """The queue of the messages that are sent before the answer; inner runs share it."""
        if self._send_queue is None:
            self._send_queue = SendQueue()
        return self._send_queue

    @property
    def has_sent(self) -> bool:
        """Whether anything was put in the queue."""
        return self._send_queue is not None

    def begin_progress(self) -> Progress | None:
        """Begin to tell the sender how far the call is; None if it sent no progress token."""
        if (token := self.progress_token) is None:
            return None
        self.progress = progress = Progress(
            token,
            self.exchange,
            revision=self.revision,
            repeat_after=self.server.repeat_after,
            counters=self.server.notifier.counters,
        )
        return progress

    def note_wait(self, cause: str, since: float) -> None:
        """Note that it did not run since a time of the event loop's clock; a wait for nothing is none."""
        seconds = asyncio.get_running_loop().time() - since
        if seconds >= _SHORTEST_WAIT_SECONDS and len(self.waits) < _MAX_NOTED:
            self.waits = (*self.waits, Wait(cause, seconds))

    def note_progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Note what it has reported; `message` is masked."""
        report = ProgressReport(time.time(), progress, total, message and message[:_MAX_MESSAGE_LENGTH])
        # The newest ones: with this one there are no more than `_MAX_NOTED`.
        self.reported = (*self.reported[1 - _MAX_NOTED :], report)

    @property
    def era(self) -> Era:
        return Era.MODERN if self.revision in MODERN else Era.LEGACY

    @property
    def client_info(self) -> JsonObject:
        return self.terms.client_info

    @property
    def progress_token(self) -> str | int | None:
        token: Json = self.meta.get(meta.META_PROGRESS_TOKEN)
        # basic/utilities/progress: a string or an integer. To `isinstance`, `true` is one.
        return token if isinstance(token, (str, int)) and not isinstance(token, bool) else None

    @property
    def is_modern_http(self) -> bool:
        """Whether header fields mirror the body (2026-07-28 over Streamable HTTP)."""
        return self.session is None and self.caller.binding is Binding.STREAMABLE_HTTP and not self.is_wrapped

    @property
    def described_params(self) -> JsonObject:
        """The parameters with a description in place of each file."""
        return described_params(self.method, self.params, self.catalog)

    @property
    def trace(self) -> TraceContext | None:
        """The trace that the request belongs to. 2026-07-28 basic/index, "OpenTelemetry trace context".

        `_meta` outranks the HTTP request's fields: those may be a proxy's own, and are the same for a whole batch.
        """
        if isinstance(self._trace, bool):
            fields, headers = self.meta, self.caller.headers
            is_traced = TRACEPARENT in fields or TRACEPARENT in headers  # nearly never
            self._trace = read_trace(fields) or read_trace(headers) if is_traced else None
        return self._trace

    @property
    def caller_facts(self) -> JsonObject:
        """The verified facts that templates read as `caller`."""
        if self._caller_facts is None:
            self._caller_facts = facts_of(self.caller.identity, self.client_info)
        return self._caller_facts

    @property
    def is_hidden(self) -> bool:
        """Whether the target exists, but not in the caller's view of the catalog."""
        if self.name is not None or not self.catalog.is_part:
            return False
        return _target(self.method, self.params, self.server.store.current)[1] is not None

    @property
    def generation(self) -> int:
        return self.catalog.generation

    @property
    def redactor(self) -> Redactor:
        return self.catalog.redactor


def open_call(  # noqa: PLR0913 - the facts of a request
    request: Request,
    *,
    terms: ClientTerms,
    catalog: Catalog,
    exchange: Exchange,
    server: "ServerState",
    session: Session | None = None,
) -> Call:
    """Make the call of a request whose revision, method and sender were checked.

    Raises:
        RpcError: what `call_tool` is given nests too deep.
    """
    meant = request if catalog.listed_tools is None else search_tools.unwrapped(request, catalog)
    # Its arguments may have come as text, which the check of the message does not look into.
    if meant is not request and jsonrpc.is_deeper(meant.params, server.max_depth - 1):
        raise RpcError(ErrorCode.INVALID_REQUEST, f"Nested more than {server.max_depth} deep (limits.request_depth)")
    method, params = meant.method, meant.params
    fields = params.get(meta.META)
    kind, target = _target(method, params, catalog)
    return Call(
        id=current_call_id(),
        request_id=request.id,
        method=method,
        params=params,
        meta=fields if isinstance(fields, dict) else _NO_META,
        kind=kind,
        target=target,
        name=None if target is None else target.name,
        revision=terms.revision,
        terms=terms,
        catalog=catalog,
        exchange=exchange,
        caller=exchange.caller,
        server=server,
        session=session,
        session_id=None if session is None else session.id,
        is_wrapped=meant is not request,
    )


def _target(method: str, params: JsonObject, catalog: Catalog) -> tuple[str, Primitive | None]:
    """The kind of primitive that a request is about, and the primitive."""
    match method:
        case "tools/call":
            return "tool", _named(catalog.tool, params.get("name"))
        case "prompts/get":
            return "prompt", _named(catalog.prompt, params.get("name"))
        case "resources/read":
            return "resource", _resource(catalog, params.get("uri"))
        case "completion/complete":
            return _completed_for(params, catalog)
    return "", None


def _completed_for(params: JsonObject, catalog: Catalog) -> tuple[str, Primitive | None]:
    match params.get("ref"):
        case {"type": "ref/prompt", **reference}:
            return "prompt", _named(catalog.prompt, reference.get("name"))
        case {"type": "ref/resource", "uri": str(uri)}:
            # The reference is a template as it is listed, or a URI that something serves.
            listed = (each for each in catalog.resource_templates if each.uri_template == uri)
            return "resource", next(listed, None) or _resource(catalog, uri)
    return "resource", None


def _named(find: Callable[[str], Primitive | None], name: Json) -> Primitive | None:
    return find(name) if isinstance(name, str) else None


def _resource(catalog: Catalog, uri: Json) -> Primitive | None:
    found = catalog.resource(uri) if isinstance(uri, str) else None
    return None if found is None else found[0]


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    """The state that all calls share. It outlives requests and catalogs."""

    services: Services
    max_depth: int
    """How deep a message's JSON may nest."""
    concurrency: ConcurrencyLimiter
    cursors: Cursors
    pages: ListPages
    notifier: ChangeNotifier
    store: CatalogStore
    state_signer: RequestStateSigner
    trace: Callable[[TraceContext | None], Trace]
    """Makes a call's place in the trace that its request came with."""
    is_traced: bool
    """Whether what it makes records anything."""
    rate_limiter: RateLimiter
    interaction_observer: InteractionObserver | None
    tasks: TaskRunner
    observers: Sequence[Observer]
    """Told of calls."""
    observers_of_all: Sequence[Observer]
    """Told of every request of a method."""
    repeat_after: timedelta
    """How long a call may be silent whose caller wants progress."""
