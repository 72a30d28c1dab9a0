"""Records calls as OpenTelemetry spans and exports the spans. This module is imported only if tracing is enabled.

A call has three layers of spans: the request, the run, and the work of the backend. Names and attributes follow the
semantic conventions for MCP. Arguments, results, URL paths and queries, and error messages are not recorded, because
not everyone who can read traces is allowed to see them.

A thread with a bounded queue exports the spans. A slow or missing collector loses spans, but does not delay calls or
the exit.
"""

import asyncio
import hashlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import Token
from typing import Final, Literal

import structlog
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway import __version__
from gateway.telemetry.logs import CALL, LOG_CONTEXT, TRACE_ID
from gateway.telemetry.observer import CallFacts, CallResult, Outcome
from gateway.telemetry.trace import TraceContext, read_trace

log: Final = structlog.get_logger(__name__)

SHUTDOWN_GRACE_SECONDS: Final = 2.0
"""The maximum time to wait for the collector at exit."""
MAX_URI_LENGTH: Final = 1024
_OWN: Final = {"service.name": "mcp-gateway", "service.version": __version__}
_KINDS: Final = {"client": SpanKind.CLIENT, "internal": SpanKind.INTERNAL}
_NAMES: Final = {"tool": "gen_ai.tool.name", "prompt": "gen_ai.prompt.name"}
_PROPAGATOR: Final = TraceContextTextMapPropagator()


def begin() -> "Spans":
    """Start exporting spans to the endpoint of the `OTEL_…` variables. Raise ValueError if a variable is invalid."""
    given = OTELResourceDetector().detect().attributes
    # Disable the SDK's exit handler, which waits for an unreachable collector. `close` limits the time.
    provider = TracerProvider(resource=Resource.create({**_OWN, **given}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)  # Plugins that record spans use this provider.
    log.info("recording spans", service=provider.resource.attributes.get("service.name"))
    return Spans(provider)


class Spans:
    """Records the spans of requests (as an observer) and of their steps (as a `Trace`)."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider: Final = provider
        self._tracer: Final = provider.get_tracer("mcp-gateway", __version__)
        self._requests: Final[dict[str, tuple[Span, Token[Context]]]] = {}

    def began(self, call: CallFacts) -> None:
        parent = _context_of(call.trace)
        span = self._tracer.start_span(_title(call), context=parent, kind=SpanKind.SERVER, attributes=_facts(call))
        # Set as current, so that spans of the call and of plugins become its children.
        self._requests[call.id] = span, contexts.attach(trace.set_span_in_context(span, parent))
        LOG_CONTEXT.set({CALL: call.id, TRACE_ID: format(span.get_span_context().trace_id, "032x")})

    def ended(self, call: CallFacts, ending: CallResult) -> None:
        span, token = self._requests.pop(call.id)
        contexts.detach(token)
        # Semantic conventions for MCP, `error.type`: `tool_error`, or the JSON-RPC error code.
        match ending.outcome:
            case Outcome.TOOL_ERROR | Outcome.CANCELLED:
                _fail(span, ending.outcome.value)
            case Outcome.PROTOCOL_ERROR if ending.error is not None:
                span.set_attribute("rpc.response.status_code", str(ending.error.code))
                _fail(span, str(ending.error.code))
        span.end()

    @contextmanager
    def step(
        self, name: str, *, kind: Literal["client", "internal"], facts: Mapping[str, str | int]
    ) -> Iterator["SpanStep"]:
        # The SDK must not record exceptions, whose text can contain arguments.
        with self._tracer.start_as_current_span(
            name, kind=_KINDS[kind], attributes=facts, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield SpanStep(span)
            except asyncio.CancelledError:
                _fail(span, Outcome.CANCELLED.value)
                raise
            # AwaitingInput is not a failure, and not a subclass of Exception.
            except Exception as error:
                _fail(span, type(error).__name__)
                raise

    async def close(self) -> None:
        """Export the queued spans in a thread, and wait up to `SHUTDOWN_GRACE_SECONDS` for the export."""
        loop, sent = asyncio.get_running_loop(), asyncio.Event()

        def send() -> None:
            self._provider.shutdown()
            try:
                loop.call_soon_threadsafe(sent.set)
            except RuntimeError:
                return  # The loop was closed before the export ended.

        threading.Thread(target=send, name="last spans", daemon=True).start()
        try:
            async with asyncio.timeout(SHUTDOWN_GRACE_SECONDS):
                await sent.wait()
        except TimeoutError:
            log.warning("the last spans were not sent: the collector does not respond")


class SpanStep:
    """A span that is current inside its `with` block, and in threads that the block starts."""

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span: Final = span

    @property
    def context(self) -> TraceContext | None:
        fields: dict[str, str] = {}
        _PROPAGATOR.inject(fields, context=trace.set_span_in_context(self._span))
        return read_trace(fields)

    def note(self, name: str, value: str | int) -> None:
        self._span.set_attribute(name, value)

    def fail(self, why: str) -> None:
        _fail(self._span, why)


def _fail(span: Span, why: str) -> None:
    span.set_attribute("error.type", why)
    # Set no description, because error messages can contain arguments.
    span.set_status(StatusCode.ERROR)


def _context_of(trace: TraceContext | None) -> Context:
    """Return the parent context. Without a trace, return an empty context, which starts a new trace."""
    return Context() if trace is None else _PROPAGATOR.extract(trace.fields, context=Context())


def _title(call: CallFacts) -> str:
    """Return the span name, such as `tools/call NAME`. Use only configured names, to limit the number of span names."""
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
        # Record a hash, because the session id is a credential.
        facts["mcp.session.id"] = hashlib.sha256(call.session_id.encode()).hexdigest()[:32]
    if call.caller.binding in _OVER_HTTP and call.caller.address:
        facts["client.address"] = call.caller.address
    return facts


_OVER_HTTP: Final = frozenset({"streamable-http", "http+sse"})


# Semantic conventions for MCP, `network.transport`: tcp for HTTP, pipe for stdio.
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
