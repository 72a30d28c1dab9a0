"""The facts of one request, the same for both eras, and what methods need beside them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gateway.access.rates import Rates
from gateway.access.slots import Slots
from gateway.catalog.primitives import Catalog
from gateway.catalog.store import CatalogStore
from gateway.executors.services import Services
from gateway.executors.trace import Trace, TraceContext, read_trace
from gateway.json_types import Json, JsonObject
from gateway.protocol import meta
from gateway.protocol.announcements import Announcements
from gateway.protocol.asker import Asker
from gateway.protocol.cursors import Cursors
from gateway.protocol.exchange import Binding, Exchange
from gateway.protocol.jsonrpc import RequestId
from gateway.protocol.list_pages import ListPages
from gateway.protocol.log_facts import this_call
from gateway.protocol.progress import Progress
from gateway.protocol.questions import Question
from gateway.protocol.sealed_state import StateSeal
from gateway.protocol.session import Session
from gateway.protocol.versions import MODERN, Era


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """One request. Its catalog was taken once, at the door, and stays the same until it is answered."""

    request_id: RequestId
    params: JsonObject
    revision: str
    client_info: JsonObject
    client_capabilities: JsonObject
    catalog: Catalog
    exchange: Exchange
    session: Session | None = None
    """None in the modern era."""
    call_id: str = field(default_factory=this_call)
    """Stands in all that is said about it: log lines, traces, the audit log."""
    envelope_log_level: str | None = None
    is_inner: bool = False
    """Whether this is a call within that of the request, which has its caller's place and was counted."""
    progress: Progress | None = None
    """Where its sender wants to hear of it, and it may take a while."""
    trace: TraceContext | None = None
    """The trace that it belongs to: see `trace_of`."""

    @property
    def era(self) -> Era:
        return Era.MODERN if self.revision in MODERN else Era.LEGACY

    @property
    def log_level(self) -> str | None:
        """The mildest level that the client wants to hear of; None if it did not ask for any."""
        return self.envelope_log_level if self.session is None else self.session.log_level

    @property
    def fields(self) -> JsonObject:
        """The request's `_meta`."""
        fields = self.params.get(meta.META)
        return fields if isinstance(fields, dict) else {}

    @property
    def progress_token(self) -> str | int | None:
        token: Json = self.fields.get(meta.META_PROGRESS_TOKEN)
        return token if isinstance(token, str | int) and not isinstance(token, bool) else None

    @property
    def is_modern_http(self) -> bool:
        """Whether header fields mirror the body (2026-07-28 over Streamable HTTP)."""
        return self.session is None and self.exchange.caller.binding is Binding.STREAMABLE_HTTP


def trace_of(params: JsonObject, exchange: Exchange) -> TraceContext | None:
    """The trace that a request belongs to. 2026-07-28 basic/index, "OpenTelemetry trace context": `_meta` carries it.

    What the HTTP request carries may be a proxy's own, and is the same for every message of a batch.
    """
    fields = params.get(meta.META)
    carried = read_trace(fields) if isinstance(fields, dict) else None
    return carried or read_trace(exchange.caller.headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What outlives requests and catalogs."""

    services: Services
    slots: Slots
    cursors: Cursors
    pages: ListPages
    announcements: Announcements
    store: CatalogStore
    seal: StateSeal
    trace: Callable[[TraceContext | None], Trace]
    """Makes the place in a trace of a call whose request came with that."""
    rates: Rates
    read: "Read"
    """Reads a resource as the sender of a request may: for tools and prompts that embed one."""
    witness: "Witness"


class Read(Protocol):
    async def __call__(
        self, uri: str, request: RequestContext, runtime: Runtime, *, asker: Asker | None
    ) -> Sequence[JsonObject]: ...


class Witness(Protocol):
    """Learns of what calls ask their clients. Called on the event loop; must neither block nor raise."""

    def asked(self, request: RequestContext, questions: Mapping[str, Question]) -> None:
        """Questions have gone out."""

    def confirmed(self, request: RequestContext, answer: str) -> None:
        """`confirm:` was answered: accept, decline or cancel; or `unasked`, where the file allows that."""


class Nobody:
    """A witness who keeps it to himself."""

    def asked(self, request: RequestContext, questions: Mapping[str, Question]) -> None: ...
    def confirmed(self, request: RequestContext, answer: str) -> None: ...
