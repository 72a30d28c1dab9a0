import asyncio
import time
from collections.abc import Callable, Hashable, Sequence
from datetime import timedelta
from typing import Final

import msgspec

from gateway.access.claims import facts_of
from gateway.catalog import search_tools
from gateway.catalog.catalog import Catalog
from gateway.catalog.primitives import Primitive
from gateway.catalog.store import CatalogStore
from gateway.errors import ErrorCode, RpcError
from gateway.executors.shared_services import Services
from gateway.json_types import Json, JsonObject, empty
from gateway.limits.concurrency import ConcurrencyLimiter
from gateway.limits.rate_limiter import RateLimiter
from gateway.protocol.call.input_requests.request_state import RequestStateSigner
from gateway.protocol.call.progress import ProgressReporter
from gateway.protocol.exchange import Binding, Caller, Exchange
from gateway.protocol.list_pages import ListPages
from gateway.protocol.message_log import described_params
from gateway.protocol.notifier import ChangeNotifier
from gateway.protocol.outbox import SendQueue
from gateway.protocol.session import Session
from gateway.tasks.runner import TaskRunner
from gateway.telemetry.logs import current_call_id
from gateway.telemetry.observer import ClientTerms, InteractionObserver, Observer, ProgressReport, Wait
from gateway.telemetry.trace import TRACEPARENT, Trace, TraceContext, read_trace
from gateway.wire import jsonrpc, meta
from gateway.wire.jsonrpc import Request, RequestId
from gateway.wire.revisions import LEGACY, Era

_NO_META: Final = empty()
_MEMORY: Final = Binding.MEMORY
_MAX_NOTED: Final = 20
_MAX_MESSAGE_LENGTH: Final = 1000
_SHORTEST_WAIT_SECONDS: Final = 0.001


class CallActivity:
    __slots__ = ("_queue", "reports", "waits")

    def __init__(self) -> None:
        self.waits: tuple[Wait, ...] = ()
        self.reports: tuple[ProgressReport, ...] = ()
        self._queue: SendQueue | None = None

    @property
    def queue(self) -> SendQueue:
        """The queue of messages to send before the response. All runs of the call share this queue."""
        if self._queue is None:
            self._queue = SendQueue()
        return self._queue

    @property
    def has_sent(self) -> bool:
        return self._queue is not None

    def record_wait(self, cause: str, since: float) -> None:
        """Record a wait from `since` (on the event loop's clock) until now. `cause` is the reason for the wait."""
        seconds = asyncio.get_running_loop().time() - since
        if seconds >= _SHORTEST_WAIT_SECONDS and len(self.waits) < _MAX_NOTED:
            self.waits = (*self.waits, Wait(cause, seconds))

    def record_progress(self, progress: float, total: float | None, message: str | None) -> None:
        report = ProgressReport(time.time(), progress, total, message and message[:_MAX_MESSAGE_LENGTH])
        self.reports = (*self.reports[1 - _MAX_NOTED :], report)


class Call(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A request, together with the sender, the protocol revision, and the catalog that the request uses."""

    id: str
    """Identifies the call in logs, spans, audit records and internal errors."""
    request_id: RequestId
    method: str
    params: JsonObject
    meta: JsonObject
    kind: str
    """`tool`, `resource` or `prompt`, or an empty string for other requests."""
    target: Primitive | None
    """The tool, resource or prompt to call or complete. None for other requests and for hidden entries."""
    name: str | None
    revision: str
    terms: ClientTerms
    catalog: Catalog
    exchange: Exchange
    caller: Caller
    server: "ServerState"
    session: Session | None
    """The legacy session, or None in the modern era."""
    session_id: str | None
    is_wrapped: bool
    """Whether the client called the tool through `call_tool`. The header fields then describe that outer call."""
    activity: CallActivity
    progress: ProgressReporter | None = None
    seconds_left: Callable[[], float] | None = None
    """Returns the seconds until the call's task expires. The attribute is None if the call is not a task."""

    @property
    def output_seconds(self) -> float | None:
        """The number of seconds for which a long output is stored, or None for the default."""
        return None if self.seconds_left is None else self.seconds_left()

    @property
    def era(self) -> Era:
        return Era.LEGACY if self.revision in LEGACY else Era.MODERN

    @property
    def progress_token(self) -> str | int | None:
        token: Json = self.meta.get(meta.META_PROGRESS_TOKEN)
        # A token must be a string or an integer (basic/utilities/progress). In Python, `True` is an integer.
        return token if isinstance(token, (str, int)) and not isinstance(token, bool) else None

    @property
    def wants_progress(self) -> bool:
        return self.progress is not None

    @property
    def has_input_responses(self) -> bool:
        """Whether a modern client has retried the call with responses to input requests."""
        return self.session is None and ("inputResponses" in self.params or "requestState" in self.params)

    @property
    def is_modern_http(self) -> bool:
        """Whether headers must repeat parameters of the request, as 2026-07-28 requires over Streamable HTTP."""
        return self.session is None and self.caller.binding is Binding.STREAMABLE_HTTP and not self.is_wrapped

    @property
    def described_params(self) -> JsonObject:
        return described_params(self.method, self.params, self.catalog)

    @property
    def trace(self) -> TraceContext | None:
        """The trace context of `_meta`, or else of the HTTP headers (basic/index, "OpenTelemetry trace context")."""
        fields, headers = self.meta, self.caller.headers
        if TRACEPARENT not in fields and TRACEPARENT not in headers:
            return None
        return read_trace(fields) or read_trace(headers)

    @property
    def waits(self) -> Sequence[Wait]:
        return self.activity.waits

    @property
    def reports(self) -> Sequence[ProgressReport]:
        return self.activity.reports

    @property
    def caller_facts(self) -> JsonObject:
        return facts_of(self.caller.identity, self.terms.client_info)

    @property
    def is_hidden(self) -> bool:
        """Whether the requested tool, resource or prompt exists but is hidden from the caller."""
        if self.name is not None or not self.catalog.is_part:
            return False
        return _target(self.method, self.params, self.server.store.current)[1] is not None

    @property
    def rights(self) -> Hashable:
        return self.caller.identity.scopes, self.catalog.access_digest

    @property
    def client_key(self) -> str:
        if self.session_id is not None:
            return f"session {self.session_id}"
        subject = self.caller.identity.subject_key
        return "" if subject is None else f"principal {subject}"

    @property
    def announce(self) -> Callable[[str, JsonObject], object] | None:
        return None if self.session is None else self.session.outbox.put


def open_call(  # noqa: PLR0913 - the facts of a request
    request: Request,
    *,
    terms: ClientTerms,
    catalog: Catalog,
    exchange: Exchange,
    server: "ServerState",
    session: Session | None = None,
) -> Call:
    """Create the call for a checked request. A call of `call_tool` becomes a call of the tool in its arguments."""
    meant = request if catalog.listed_tools is None else search_tools.unwrapped(request, catalog)
    # `call_tool` accepts arguments as JSON text, and requests of this process are not decoded, so check the depth here.
    is_unchecked = meant is not request or exchange.caller.binding is _MEMORY
    if is_unchecked and jsonrpc.is_deeper(meant.params, server.max_depth - 1):
        too_deep = f"The request is nested more than {server.max_depth} levels deep (limits.request_depth)"
        raise RpcError(ErrorCode.INVALID_REQUEST, too_deep)
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
        activity=CallActivity(),
    )


def _target(method: str, params: JsonObject, catalog: Catalog) -> tuple[str, Primitive | None]:
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
            # The URI is a listed template or the URI of a resource.
            listed = (each for each in catalog.resource_templates if each.uri_template == uri)
            return "resource", next(listed, None) or _resource(catalog, uri)
    return "resource", None


def _named(find: Callable[[str], Primitive | None], name: Json) -> Primitive | None:
    return find(name) if isinstance(name, str) else None


def _resource(catalog: Catalog, uri: Json) -> Primitive | None:
    found = catalog.resource(uri) if isinstance(uri, str) else None
    return None if found is None else found[0]


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    services: Services
    max_depth: int
    concurrency: ConcurrencyLimiter
    pages: ListPages
    notifier: ChangeNotifier
    store: CatalogStore
    state_signer: RequestStateSigner
    trace: Callable[[TraceContext | None], Trace]
    rate_limiter: RateLimiter
    interaction_observer: InteractionObserver | None
    tasks: TaskRunner
    observers: Sequence[Observer]
    observers_of_all: Sequence[Observer]
    repeat_after: timedelta
