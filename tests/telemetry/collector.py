"""An OTLP collector on loopback that stores the received spans."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from gateway.json_types import Json, JsonObject
from tests.local_server import listening

SECONDS: Final = 15.0


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A span."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    state: str
    is_error: bool
    attributes: JsonObject
    """Span ids."""
    resource: JsonObject


@dataclass
class Collector:
    url: str = ""
    spans: list[Recorded] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def export(self, request: web.Request) -> web.Response:
        body = await request.read()
        data = gzip.decompress(body) if request.headers.get("Content-Encoding") == "gzip" else body
        self.raw.append(data)
        message = ExportTraceServiceRequest.FromString(data)
        for resource_spans in message.resource_spans:
            resource = _values(resource_spans.resource.attributes)
            for scope_spans in resource_spans.scope_spans:
                self.spans.extend(_recorded(span, resource) for span in scope_spans.spans)
        self._arrived.set()
        return web.Response(body=b"", content_type="application/x-protobuf")

    async def find(self, wanted: Callable[[Recorded], bool]) -> Recorded:
        """Wait for the first matching span."""
        async with asyncio.timeout(SECONDS):
            while True:
                for span in self.spans:
                    if wanted(span):
                        return span
                self._arrived.clear()
                await self._arrived.wait()

    async def named(self, name: str) -> Recorded:
        return await self.find(lambda span: span.name == name)

    async def child_of(self, parent: Recorded) -> Recorded:
        return await self.find(lambda span: span.parent_id == parent.span_id)


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    collector = Collector()
    application = web.Application()
    application.router.add_post("/v1/traces", collector.export)
    async with listening(application) as port:
        collector.url = f"http://127.0.0.1:{port}"
        yield collector


def _recorded(span: Span, resource: JsonObject) -> Recorded:
    return Recorded(
        name=span.name,
        kind=Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        state=span.trace_state,
        is_error=span.status.code == 2,
        attributes=_values(span.attributes),
        resource=resource,
    )


def _values(pairs: list[KeyValue]) -> JsonObject:
    found: dict[str, Json] = {}
    for pair in pairs:
        which = pair.value.WhichOneof("value")
        found[pair.key] = getattr(pair.value, which) if which is not None else None
    return found
