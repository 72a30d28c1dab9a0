"""One HTTP request to the MCP endpoint, past the guard, and what may be answered without asking the protocol."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

from aiohttp import web

from gateway.access.denial import Entry
from gateway.errors import ErrorCode, RpcError
from gateway.protocol import meta, results
from gateway.protocol.exchange import Binding, Caller
from gateway.protocol.jsonrpc import Message, Request
from gateway.transports.accept import Accepted, parse_accept
from gateway.transports.event_stream import Pace
from gateway.transports.late_response import LateResponse, whole_response
from gateway.transports.refusal import RETRY, Refusal
from gateway.transports.visit import Task, Visit

SESSION_HEADER: Final = "Mcp-Session-Id"
SERVER: Final = {"Server": "mcp-gateway"}
_CREDENTIALS: Final = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key"})
NOT_ACCEPTABLE: Final = Refusal(status=406, message="Accept must allow application/json or text/event-stream")

MOST_IN_FLIGHT: Final = 256
"""Requests of one session. Its client may send more once some are answered."""
BUSY: Final = Refusal(status=503, message=f"{MOST_IN_FLIGHT} requests of this session are running", headers=RETRY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What one request may cost."""

    max_body: int
    """Bytes."""
    max_depth: int
    """How deep its JSON may nest."""
    pace: Pace
    receive_seconds: float = 30.0
    """How long its body may take to arrive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """The request, who sent it, and what its response will carry."""

    request: web.Request
    task: Task
    """The one that answers it."""
    caller: Caller
    accepted: Accepted
    headers: Mapping[str, str]
    """Fields that every response to it carries."""
    entry: Entry
    """What its client needs to know if it lacks a scope."""

    @classmethod
    def read(cls, visit: Visit, *, binding: Binding = Binding.STREAMABLE_HTTP) -> Self:
        request = visit.request
        caller = Caller(
            binding=binding, identity=visit.identity, address=visit.approach.address, headers=_fields(request)
        )
        accepted = parse_accept(request.headers.get("Accept"))
        return cls(
            request=request,
            task=visit.task,
            caller=caller,
            accepted=accepted,
            headers=visit.headers,
            entry=visit.entry,
        )

    @property
    def version(self) -> str | None:
        return self.caller.headers.get(meta.HEADER_PROTOCOL_VERSION)

    @property
    def session_id(self) -> str | None:
        return self.caller.headers.get(SESSION_HEADER.lower())

    def answering(self, headers: Mapping[str, str]) -> Self:
        """The same, with more fields on its response."""
        return replace(self, headers={**self.headers, **headers})

    @property
    def last_event_id(self) -> str | None:
        """The event after which a client wants to go on; an empty one says that it knows none (WHATWG HTML §9.2.4)."""
        return self.caller.headers.get("last-event-id") or None

    def late_response(self, pace: Pace, *, preamble: bytes = b"") -> LateResponse:
        return LateResponse(
            self.request,
            caller=self.caller,
            accepted=self.accepted,
            pace=pace,
            headers=self.headers,
            entry=self.entry,
            preamble=preamble,
        )

    def refuse(self, refusal: Refusal, message: Message | None = None) -> web.Response:
        return refuse(refusal, headers=self.headers, message=message)


def refuse(refusal: Refusal, *, headers: Mapping[str, str], message: Message | None = None) -> web.Response:
    """An HTTP status and a JSON-RPC error, under the message's id if it is a request."""
    request_id = message.id if isinstance(message, Request) else None
    error = RpcError(ErrorCode.INVALID_REQUEST, refusal.message)
    reply = results.error_reply(error, request_id=request_id, revision=None, status=refusal.status)
    return whole_response(reply, headers={**headers, **refusal.headers})


def _fields(request: web.Request) -> dict[str, str]:
    """Header fields by lower-case name; differing values of one name are joined (RFC 9110 §5.3) and match neither.

    Without credentials: they have done their work at the front door, and nobody further in can pass them on.
    """
    fields = {name.lower(): value for name, value in request.headers.items()}
    if len(fields) < len(request.headers):
        for name in fields:
            fields[name] = ", ".join(dict.fromkeys(request.headers.getall(name)))
    for name in _CREDENTIALS & fields.keys():
        del fields[name]
    return fields
