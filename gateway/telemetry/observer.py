"""The interface through which metrics, traces and the audit log observe calls.

A call is a request that runs user code: a tool call, a resource read, a prompt or a completion. Observers are notified
when a call starts and ends, and cannot change the call. Observers do not depend on the protocol and the catalog.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec
import orjson

from gateway.config.secrets.redactor import Redactor
from gateway.errors import RpcError
from gateway.json_types import JsonObject
from gateway.telemetry.trace import TraceContext
from gateway.wire.jsonrpc import RequestId
from gateway.wire.revisions import Era


class Outcome(StrEnum):
    OK = "ok"
    TOOL_ERROR = "tool_error"
    """A result with `isError`: the tool failed or did not run."""
    PROTOCOL_ERROR = "protocol_error"
    INPUT_REQUIRED = "input_required"
    """The client was asked for input (2026-07-28) and will retry."""
    CANCELLED = "cancelled"


class Wait(msgspec.Struct, frozen=True, gc=False):
    cause: str
    """The reason for the wait: `concurrency` for a queued call, `answer` for input from the client."""
    seconds: float


class ProgressReport(msgspec.Struct, frozen=True, gc=False):
    at: float
    """Unix time in seconds."""
    progress: float
    total: float | None
    message: str | None


class ClientTerms(Protocol):
    """The properties of a client, from its session or from the request. Secrets are not masked."""

    @property
    def revision(self) -> str: ...
    @property
    def client_info(self) -> JsonObject: ...
    @property
    def capabilities(self) -> JsonObject: ...
    @property
    def log_level(self) -> str | None:
        """The lowest level of log messages that the client has requested. None if it has requested no messages."""


class CatalogFacts(Protocol):
    @property
    def generation(self) -> int: ...
    @property
    def redactor(self) -> Redactor: ...


class CallerFacts(Protocol):
    @property
    def binding(self) -> str: ...
    @property
    def principal(self) -> str | None: ...
    @property
    def realm(self) -> str: ...
    @property
    def view(self) -> str | None: ...
    @property
    def address(self) -> str: ...
    @property
    def headers(self) -> Mapping[str, str]: ...


class CallFacts(Protocol):
    """The facts about a call that observers can read. Properties are computed on access."""

    @property
    def id(self) -> str:
        """The id of the call in log lines and in internal errors."""

    @property
    def method(self) -> str: ...
    @property
    def kind(self) -> str:
        """`tool`, `resource` or `prompt`. Empty if the request is not a call."""

    @property
    def name(self) -> str | None:
        """The key of the tool, resource or prompt in the configuration. None if it is unknown to the caller."""

    @property
    def is_hidden(self) -> bool:
        """Whether the tool, resource or prompt exists but is hidden from the caller."""

    @property
    def request_id(self) -> RequestId: ...

    @property
    def caller_facts(self) -> JsonObject:
        """The verified identity of the caller, for templates.

        The identity contains claims, which must not be logged.
        """

    @property
    def params(self) -> JsonObject:
        """The parameters from the client, unmasked."""

    @property
    def described_params(self) -> JsonObject:
        """The unmasked parameters, with a description in place of each file."""

    @property
    def revision(self) -> str: ...
    @property
    def era(self) -> Era: ...
    @property
    def terms(self) -> ClientTerms: ...
    @property
    def session_id(self) -> str | None:
        """The session id. None if the protocol revision has no sessions."""

    @property
    def caller(self) -> CallerFacts: ...
    @property
    def trace(self) -> TraceContext | None: ...

    @property
    def catalog(self) -> CatalogFacts: ...
    @property
    def waits(self) -> Sequence[Wait]: ...
    @property
    def reports(self) -> Sequence[ProgressReport]: ...


class CallResult(msgspec.Struct, frozen=True, kw_only=True):
    outcome: Outcome
    seconds: float = 0.0
    error: RpcError | None = None
    limit: str | None = None
    """The rate or concurrency limit that refused the call."""
    response: bytes | None = None
    """The JSON-RPC response. None for a cancelled call."""

    @property
    def reason(self) -> str:
        """The unmasked error message, or the text of a failed tool result on one line. Empty for other outcomes."""
        if self.error is not None:
            return self.error.message
        if self.outcome is not Outcome.TOOL_ERROR or self.response is None:
            return ""
        blocks = orjson.loads(self.response).get("result", {}).get("content", ())
        return " ".join(" ".join(block.get("text", "") for block in blocks).split())


class Observer(Protocol):
    """An observer of calls. Its methods run on the event loop in the request's task, and must not block or raise."""

    def began(self, call: CallFacts) -> None: ...
    def ended(self, call: CallFacts, ending: CallResult) -> None: ...


class InteractionObserver(Protocol):
    """An observer of input requests. Its methods run on the event loop, and must not block or raise."""

    def input_requested(self, call: CallFacts, methods: Mapping[str, str]) -> None:
        """Called after input requests were sent. `methods` maps the key of each request to its method."""

    def confirmed(self, call: CallFacts, answer: str) -> None:
        """Called with the result of `confirm:`: accept, decline, cancel, or `unasked` if no question was sent."""
