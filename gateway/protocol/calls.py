"""What is told of each call, as it begins and as it ends: to metrics, traces, the audit log, and whoever watches.

A call is a request that runs what the operator or an author wrote (`Method.is_call`): a tool call, a resource that is
read, a prompt, a completion. Observers learn of it and change nothing.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import Token
from enum import StrEnum
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self

import structlog

from gateway.catalog.primitives import Catalog, Primitive
from gateway.errors import RpcError
from gateway.json_types import Json, JsonObject
from gateway.protocol.log_facts import CALL, LOG_FACTS, TRACE_ID
from gateway.protocol.request import RequestContext

log: Final = structlog.get_logger(__name__)


class EndedAs(StrEnum):
    OK = "ok"
    TOOL_ERROR = "tool_error"
    """A result with `isError`: the tool failed, or did not run, and the model was told why."""
    PROTOCOL_ERROR = "protocol_error"
    """A JSON-RPC error."""
    INPUT_REQUIRED = "input_required"
    """The client was asked (2026-07-28), and will try again."""
    CANCELLED = "cancelled"


class Call(NamedTuple):
    """One call that is about to run."""

    id: str
    """Stands in every log line of the call, and in the error that an internal failure is answered with."""
    method: str
    kind: str
    """`tool`, `resource` or `prompt`: what was called, or what is completed for. Empty where the request is no call."""
    name: str | None
    """The primitive's key in the file; None if what was asked for is unknown, at least to this caller."""
    request: RequestContext
    """Who asked, in which revision, of which catalog, and with which parameters."""


class Ending(NamedTuple):
    """How a call ended."""

    outcome: EndedAs
    seconds: float
    error: RpcError | None = None
    """What a `PROTOCOL_ERROR` was answered with."""
    is_over_limit: bool = False
    """Whether it was refused because of a rate or a number, whatever it was answered with."""


class Observer(Protocol):
    """Called on the event loop, in the task that serves the request. Must neither block nor raise."""

    def began(self, call: Call) -> None: ...
    def ended(self, call: Call, ending: Ending) -> None: ...


class Observers:
    """All that are told."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers: Final = tuple(observers)

    def watch(self, request: RequestContext, method: str) -> "Watch":
        """A context for the time that a call runs."""
        kind, name = _called(request, method) if self._observers else ("", None)
        return Watch(Call(id=request.call_id, method=method, kind=kind, name=name, request=request), self._observers)


class Watch:
    """One call, while it runs. What is not said to have ended otherwise was cancelled."""

    __slots__ = ("_began", "_error", "_is_over_limit", "_observers", "_outcome", "_token", "call")

    def __init__(self, call: Call, observers: Sequence[Observer]) -> None:
        self.call: Final = call
        self._observers: Final = observers
        self._outcome = EndedAs.CANCELLED
        self._error: RpcError | None = None
        self._is_over_limit = False
        self._began = 0.0
        self._token: Token[Mapping[str, str]] | None = None

    def __enter__(self) -> Self:
        trace = self.call.request.trace
        facts = {CALL: self.call.id}
        self._token = LOG_FACTS.set(facts if trace is None else {**facts, TRACE_ID: trace.trace_id})
        self._began = time.monotonic()
        for observer in self._observers:
            try:
                observer.began(self.call)
            except Exception:  # Boundary: whoever watches a call must not be able to fail it.
                log.exception("observer failed")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._observers:
            seconds = time.monotonic() - self._began
            ending = Ending(
                outcome=self._outcome, seconds=seconds, error=self._error, is_over_limit=self._is_over_limit
            )
            for observer in self._observers:
                try:
                    observer.ended(self.call, ending)
                except Exception:  # Boundary: as above.
                    log.exception("observer failed")
        if self._token is not None:
            LOG_FACTS.reset(self._token)

    def answered(self, result: JsonObject | bytes) -> None:
        """It was answered with this result."""
        self._outcome = EndedAs.OK if isinstance(result, bytes) else _outcome_of(result)

    def over_limit(self) -> None:
        """It is refused because of a rate or a number."""
        self._is_over_limit = True

    def failed(self, error: RpcError) -> None:
        """It was answered with this error."""
        self._outcome, self._error = EndedAs.PROTOCOL_ERROR, error


def _outcome_of(result: JsonObject) -> EndedAs:
    if result.get("isError") is True:
        return EndedAs.TOOL_ERROR
    return EndedAs.INPUT_REQUIRED if result.get("resultType") == "input_required" else EndedAs.OK


def _called(request: RequestContext, method: str) -> tuple[str, str | None]:
    """The kind of primitive that a request is about, and its key in the file."""
    params, catalog = request.params, request.catalog
    match method:
        case "tools/call":
            return "tool", _name(catalog.tool, params.get("name"))
        case "prompts/get":
            return "prompt", _name(catalog.prompt, params.get("name"))
        case "resources/read":
            return "resource", _resource(catalog, params.get("uri"))
        case "completion/complete":
            return _completed_for(params, catalog)
    return "", None


def _completed_for(params: JsonObject, catalog: Catalog) -> tuple[str, str | None]:
    reference = params.get("ref")
    reference = reference if isinstance(reference, Mapping) else {}
    if reference.get("type") == "ref/prompt":
        return "prompt", _name(catalog.prompt, reference.get("name"))
    return "resource", _resource(catalog, reference.get("uri"))


def _name(find: Callable[[str], Primitive | None], name: Json) -> str | None:
    found = find(name) if isinstance(name, str) else None
    return None if found is None else found.name


def _resource(catalog: Catalog, uri: Json) -> str | None:
    """The key of what serves a URI, or of the template that is written so."""
    if not isinstance(uri, str):
        return None
    if (found := catalog.resource(uri)) is not None:
        return found[0].name
    return next((each.name for each in catalog.resource_templates if each.uri_template == uri), None)
