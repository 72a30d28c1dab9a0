"""Records calls as OpenTelemetry spans, and exports them to a collector. Imported only where tracing is on.

A call has three layers of spans: the request as its client sees it, the run once its turn has come, and the work of the
backend. Names and attributes are those of the semantic conventions for MCP. Arguments, results, paths and queries of
URLs, and texts of errors, which may quote any of them, are not recorded: readers of traces may not be entitled to them.

Spans wait in a bounded queue for a thread of the exporter. A collector that is slow or away costs spans, but delays
neither a call nor the exit.
"""

import asyncio
import hashlib
import threading
from collections.abc import Mapping
from contextvars import Token
from types import TracebackType
from typing import Final, Literal, Self

import structlog
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway import __version__
from gateway.telemetry.log_context import CALL, LOG_CONTEXT, TRACE_ID
from gateway.telemetry.observer import CallFacts, CallResult, Outcome
from gateway.telemetry.trace import TraceContext, read_trace

log: Final = structlog.get_logger(__name__)

SHUTDOWN_GRACE_SECONDS: Final = 2.0
"""Longest wait of the daemon's end for the collector."""
MAX_URI_LENGTH: Final = 1024
_OWN: Final = {"service.name": "mcp-gateway", "service.version": __version__}
_KINDS: Final = {"client": SpanKind.CLIENT, "internal": SpanKind.INTERNAL}
_NAMES: Final = {"tool": "gen_ai.tool.name", "prompt": "gen_ai.prompt.name"}
_PROPAGATOR: Final = TraceContextTextMapPropagator()


def begin() -> "Spans":
    """Start to export spans, to the endpoint of the `OTEL_…` variables.

    Raises:
        ValueError: one of the variables has an invalid value.
    """
    given = OTELResourceDetector().detect().attributes
    # The SDK's own handler would let the exit wait for a collector that is away; `close` bounds that.
    provider = TracerProvider(resource=Resource.create({**_OWN, **given}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)  # plugins that record spans find this one
    log.info("recording spans", service=provider.resource.attributes.get("service.name"))
    return Spans(provider)


class Spans:
    """Records the spans of requests, as an observer of them, and those of their steps, as the `Trace` of each."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider: Final = provider
        self._tracer: Final = provider.get_tracer("mcp-gateway", __version__)
        self._requests: Final[dict[str, tuple[Span, Token[Context]]]] = {}
        """By call id."""

    def began(self, call: CallFacts) -> None:
        parent = _context_of(call.trace)
        span = self._tracer.start_span(
            _title(call), context=parent, kind=SpanKind.SERVER, attributes=_facts(call), links=_links(call)
        )
        # Current from here on, so that what the call does, and what a plugin records, become its children.
        self._requests[call.id] = span, contexts.attach(trace.set_span_in_context(span, parent))
        LOG_CONTEXT.set({CALL: call.id, TRACE_ID: format(span.get_span_context().trace_id, "032x")})

    def ended(self, call: CallFacts, ending: CallResult) -> None:
        span, token = self._requests.pop(call.id)
        contexts.detach(token)
        # Semantic conventions for MCP, `error.type`: `tool_error`, or the code of the JSON-RPC error.
        match ending.outcome:
            case Outcome.TOOL_ERROR | Outcome.CANCELLED:
                _fail(span, ending.outcome.value)
            case Outcome.PROTOCOL_ERROR if ending.error is not None:
                span.set_attribute("rpc.response.status_code", str(ending.error.code))
                _fail(span, str(ending.error.code))
        span.end()

    def trace(self, context: TraceContext | None) -> Self:  # noqa: ARG002 - the span that began with the call goes before
        """The trace whose span is current: steps become children of that span, whichever call it belongs to."""
        return self

    def step(self, name: str, *, kind: Literal["client", "internal"], facts: Mapping[str, str | int]) -> "SpanStep":
        return SpanStep(self._tracer.start_span(name, kind=_KINDS[kind], attributes=facts))

    async def close(self) -> None:
        """Export the queued spans, in a thread that is not waited for longer than `SHUTDOWN_GRACE_SECONDS`."""
        loop, sent = asyncio.get_running_loop(), asyncio.Event()

        def send() -> None:
            self._provider.shutdown()
            try:
                loop.call_soon_threadsafe(sent.set)
            except RuntimeError:
                return  # the loop did not wait

        threading.Thread(target=send, name="last spans", daemon=True).start()
        try:
            async with asyncio.timeout(SHUTDOWN_GRACE_SECONDS):
                await sent.wait()
        except TimeoutError:
            log.warning("the last spans were not sent: the collector does not answer")


class SpanStep:
    """A span that is current in its `with` block, so that spans begun in it, in threads too, are its children."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: Span) -> None:
        self._span: Final = span
        self._token: Token[Context] | None = None

    @property
    def context(self) -> TraceContext | None:
        return _trace_context(self._span.get_span_context())

    def note(self, name: str, value: str | int) -> None:
        self._span.set_attribute(name, value)

    def fail(self, why: str) -> None:
        _fail(self._span, why)

    def __enter__(self) -> Self:
        self._token = contexts.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            contexts.detach(self._token)
        if kind is not None and issubclass(kind, asyncio.CancelledError):
            _fail(self._span, Outcome.CANCELLED.value)
        # AwaitingInput is none, and no failure: the client answers, and the call goes on.
        elif kind is not None and issubclass(kind, Exception):
            _fail(self._span, kind.__name__)  # the type alone: the text may quote an argument
        self._span.end()


def _fail(span: Span, why: str) -> None:
    span.set_attribute("error.type", why)
    # Without the description that the conventions recommend: an error's message may quote an argument.
    span.set_status(StatusCode.ERROR)


def _context_of(trace: TraceContext | None) -> Context:
    """The caller's span as the parent; an empty context begins a new trace."""
    return Context() if trace is None else _PROPAGATOR.extract(trace.fields, context=Context())


def _trace_context(context: SpanContext) -> TraceContext:
    return TraceContext(
        parent=f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}",
        state=context.trace_state.to_header() or None,
    )


def _links(call: CallFacts) -> list[Link]:
    """A link to the span of the HTTP request, where the message has a trace context of its own."""
    # Semantic conventions for MCP, "Context propagation": the context in `params._meta` is the parent, and that of the
    # transport is linked.
    carried = read_trace(call.caller.headers)
    if carried is None or carried == call.trace:
        return []
    return [Link(trace.get_current_span(_context_of(carried)).get_span_context())]


def _title(call: CallFacts) -> str:
    """The name of the span: `tools/call NAME`. Only names of the file are used, of which there are few."""
    return f"{call.method} {call.name}" if call.name is not None and call.kind in _NAMES else call.method


def _facts(call: CallFacts) -> dict[str, str | int]:
    facts: dict[str, str | int] = {
        "mcp.method.name": call.method,
        "mcp.protocol.version": call.revision,
        "jsonrpc.request.id": str(call.request_id),
        **_transport_facts(call.caller.binding),
        **_target_facts(call),
    }
    if call.session_id is not None:
        # A session's id lets its holder speak in the session, so a digest is recorded instead.
        facts["mcp.session.id"] = hashlib.sha256(call.session_id.encode()).hexdigest()[:32]
    if call.caller.binding in _OVER_HTTP and call.caller.address:
        facts["client.address"] = call.caller.address
    return facts


_OVER_HTTP: Final = frozenset({"streamable-http", "http+sse"})


# Semantic conventions for MCP, `network.transport`: tcp where the transport is HTTP, pipe on stdio.
def _transport_facts(binding: str) -> dict[str, str | int]:
    if binding in _OVER_HTTP:
        return {"network.transport": "tcp", "network.protocol.name": "http"}
    return {"network.transport": "pipe"} if binding == "stdio" else {}


def _target_facts(call: CallFacts) -> dict[str, str | int]:
    if call.name is None:
        return {}
    facts: dict[str, str | int] = {}
    if call.kind in _NAMES:
        facts[_NAMES[call.kind]] = call.name
    if call.method == "tools/call":
        facts["gen_ai.operation.name"] = "execute_tool"
    if call.method == "resources/read":
        uri = str(call.params.get("uri"))
        facts["mcp.resource.uri"] = call.catalog.redactor.text(uri)[:MAX_URI_LENGTH]
    return facts
