"""The observer interface: what metrics, traces, the audit log and other observers are told of each call.

A call is a request that runs what the operator or an author wrote: a tool call, a read of a resource, a prompt, a
completion. Observers are told when it begins and when it ends, and cannot change it. They need neither the protocol nor
the catalog.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from gateway.config.secrets.redactor import Redactor
from gateway.errors import RpcError
from gateway.json_types import JsonObject
from gateway.telemetry.trace import TraceContext
from gateway.wire.jsonrpc import RequestId
from gateway.wire.revisions import Era


class Outcome(StrEnum):
    OK = "ok"
    TOOL_ERROR = "tool_error"
    """A result with `isError`: the tool failed, or did not run, and the model was told why."""
    PROTOCOL_ERROR = "protocol_error"
    """A JSON-RPC error."""
    INPUT_REQUIRED = "input_required"
    """The client was asked for input (2026-07-28) and will retry."""
    CANCELLED = "cancelled"


class Wait(msgspec.Struct, frozen=True, gc=False):
    """A time for which a call did not run."""

    cause: str
    """`concurrency`: its turn among other calls; `answer`: its client's answer to a question."""
    seconds: float


class ProgressReport(msgspec.Struct, frozen=True, gc=False):
    """A report of a call on its progress."""

    at: float
    """Unix time."""
    progress: float
    total: float | None
    message: str | None
    """Masked."""


class ClientTerms(Protocol):
    """The declarations of a client: for its session or, in the modern era, for one request."""

    @property
    def revision(self) -> str: ...
    @property
    def client_info(self) -> JsonObject:
        """The client's name and version as it sent them: unmasked."""

    @property
    def capabilities(self) -> JsonObject: ...
    @property
    def log_level(self) -> str | None:
        """The lowest level of log messages that the client has requested; None for no messages."""


class CatalogFacts(Protocol):
    """The catalog that serves a call."""

    @property
    def generation(self) -> int: ...
    @property
    def redactor(self) -> Redactor: ...


class ActivityFacts(Protocol):
    """The course of a call so far."""

    @property
    def waits(self) -> Sequence[Wait]: ...
    @property
    def reports(self) -> Sequence[ProgressReport]:
        """The newest progress reports."""


class CallerFacts(Protocol):
    """The sender of a call, as far as the transport tells."""

    @property
    def binding(self) -> str: ...
    @property
    def principal(self) -> str | None: ...
    @property
    def realm(self) -> str: ...
    @property
    def view(self) -> str | None:
        """The view that the caller came to; None: the whole."""

    @property
    def address(self) -> str:
        """The client's address, as far as trusted proxies tell; empty where there is none."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Header fields of the HTTP request, names in lower case; empty elsewhere."""


class CallFacts(Protocol):
    """One call, as observers see it. Fields are computed when they are read."""

    @property
    def id(self) -> str:
        """Stands in every log line of the call, and in the error that an internal failure is answered with."""

    @property
    def method(self) -> str: ...
    @property
    def kind(self) -> str:
        """`tool`, `resource` or `prompt`: what was called, or is completed for. Empty where the request is no call."""

    @property
    def name(self) -> str | None:
        """The primitive's key in the file; None if the caller's catalog has no such primitive."""

    @property
    def is_hidden(self) -> bool:
        """Whether the primitive exists, but not in the caller's view of the catalog."""

    @property
    def request_id(self) -> RequestId:
        """The JSON-RPC id that the client chose."""

    @property
    def caller_facts(self) -> JsonObject:
        """The verified identity of the caller, as templates read it: with claims, which are not for logs."""

    @property
    def params(self) -> JsonObject:
        """The parameters as the client sent them: unmasked."""

    @property
    def described_params(self) -> JsonObject:
        """The parameters with a description in place of each file that was given: unmasked, too."""

    @property
    def revision(self) -> str: ...
    @property
    def era(self) -> Era: ...
    @property
    def terms(self) -> ClientTerms: ...
    @property
    def session_id(self) -> str | None:
        """None in the modern era."""

    @property
    def caller(self) -> CallerFacts: ...
    @property
    def trace(self) -> TraceContext | None:
        """The caller's span."""

    @property
    def catalog(self) -> CatalogFacts: ...
    @property
    def activity(self) -> ActivityFacts: ...


class CallResult(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a call."""

    outcome: Outcome
    seconds: float
    error: RpcError | None = None
    """The error that a call with `PROTOCOL_ERROR` was answered with."""
    is_over_limit: bool = False
    """Whether a rate limit or a concurrency limit refused it, whatever it was answered with."""
    limit: str = ""
    """That limit, as the file calls it."""
    response: bytes | None = None
    """The JSON-RPC response as it is sent; None of a call that was cancelled."""


class Observer(Protocol):
    """Called on the event loop, in the task that serves the request. Must neither block nor raise."""

    def began(self, call: CallFacts) -> None: ...
    def ended(self, call: CallFacts, ending: CallResult) -> None: ...


class InteractionObserver(Protocol):
    """Told of the input requests of calls. Called on the event loop; must neither block nor raise."""

    def input_requested(self, call: CallFacts, methods: Mapping[str, str]) -> None:
        """Input requests were sent to the client: their methods, by key."""

    def confirmed(self, call: CallFacts, answer: str) -> None:
        """`confirm:` was answered: accept, decline or cancel; or `unasked`, where the file allows that."""
