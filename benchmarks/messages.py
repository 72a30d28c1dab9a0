"""Prepared requests, of which only the id changes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

MODERN_VERSION: Final = "2026-07-28"
SESSION_VERSION: Final = "2025-11-25"

_ENVELOPE: Final = {
    "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "benchmark", "version": "1"},
}
_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
TASKS: Final[Mapping[str, object]] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
"""The capabilities of a client with tasks."""
_ID: Final = "00000000"
"""A fixed length, so that the body's length is known."""


class Era(Enum):
    MODERN = auto()
    SESSION = auto()


@dataclass(frozen=True)
class Ask:
    """A request in both eras."""

    method: str
    params: Mapping[str, object]
    capabilities: Mapping[str, object] = field(default_factory=dict)
    """The client's capabilities in the modern era."""

    def line(self, era: Era) -> bytes:
        params = dict(self.params)
        if era is Era.MODERN:
            params["_meta"] = {**_ENVELOPE, _CAPABILITIES: self.capabilities}
        return _encoded({"jsonrpc": "2.0", "id": _ID, "method": self.method, "params": params})


def call(tool: str, **arguments: str) -> Ask:
    return Ask("tools/call", {"name": tool, "arguments": arguments})


LIST: Final = Ask("tools/list", {})
INITIALIZE: Final = Ask(
    "initialize",
    {"protocolVersion": SESSION_VERSION, "capabilities": {}, "clientInfo": {"name": "benchmark", "version": "1"}},
)
INITIALIZED: Final = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'


class Numbered:
    """Bytes that contain an id."""

    def __init__(self, data: bytes) -> None:
        self._before, _, self._after = data.partition(_ID.encode())

    def __call__(self, number: int) -> bytes:
        return b"%b%08d%b" % (self._before, number, self._after)


def post(ask: Ask, era: Era, *, session: str | None = None) -> Numbered:
    """Return an HTTP request with all headers of its era."""
    fields = {"MCP-Protocol-Version": MODERN_VERSION, "Mcp-Method": ask.method}
    for each in {"name", "taskId"}.intersection(ask.params):
        fields["Mcp-Name"] = str(ask.params[each])
    if era is Era.SESSION:
        fields = {} if ask.method == INITIALIZE.method else _session_fields(session)
    return Numbered(http("POST", fields, ask.line(era)))


def notice(session: str | None) -> bytes:
    """Return the request that ends the handshake."""
    return http("POST", _session_fields(session), INITIALIZED)


def stream(session: str | None) -> bytes:
    """Return the request that opens a session's stream."""
    return http("GET", _session_fields(session))


def _session_fields(session: str | None) -> dict[str, str]:
    fields = {"MCP-Protocol-Version": SESSION_VERSION}
    return fields if session is None else {**fields, "Mcp-Session-Id": session}


def http(method: str, fields: Mapping[str, str], body: bytes = b"", *, path: str = "/mcp") -> bytes:
    accept = "text/event-stream" if method == "GET" else "application/json, text/event-stream"
    every = {
        "Host": "127.0.0.1:8000",  # any port is accepted
        "Accept": accept,
        "User-Agent": "benchmark",
        **({"Content-Type": "application/json", "Content-Length": str(len(body))} if body else {}),
        **fields,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in every.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def _encoded(message: Mapping[str, object]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()
