"""The HTTP request that the middleware passes to an endpoint."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

from aiohttp import web

from gateway.access.auth_error import NO_CHALLENGE, Challenge
from gateway.access.authenticator import access_token_of
from gateway.access.identity import UNAUTHENTICATED, Credential, Identity
from gateway.json_types import JsonObject
from gateway.protocol.exchange import Binding, Caller
from gateway.transports.errors import HttpError
from gateway.transports.http.forwarded import ClientEndpoint
from gateway.transports.http.response import refuse
from gateway.wire import jsonrpc, meta
from gateway.wire.accept import JSON, Accepted, parse_accept
from gateway.wire.jsonrpc import InvalidMessageError, Message

Task = asyncio.Task[object]

MakeChallenge = Callable[[ClientEndpoint, str, str | None], Challenge]
"""Function that returns the `WWW-Authenticate` challenge for a client endpoint, a path and a view."""

SESSION_HEADER: Final = "Mcp-Session-Id"
_SESSION_FIELD: Final = SESSION_HEADER.lower()
_HIDDEN: Final = ("authorization", "cookie", "proxy-authorization", "x-api-key", "content-length")


def read_fields(raw: web.BaseRequest) -> Mapping[str, str]:
    """Return headers by lower-case name, without credentials and the content length.

    Repeated headers are joined (RFC 9110 §5.3).
    """
    fields = {name.lower(): value for name, value in raw.headers.items()}
    # Join repeated headers, of which only the last value is kept so far.
    if len(fields) < len(raw.headers):
        for name in fields:
            fields[name] = ", ".join(dict.fromkeys(raw.headers.getall(name)))
    for name in _HIDDEN:
        fields.pop(name, None)
    return fields


class HttpRequest:
    def __init__(  # noqa: PLR0913 - the facts of a request
        self,
        raw: web.Request,
        *,
        client_endpoint: ClientEndpoint,
        response_headers: Mapping[str, str],
        identity: Identity = UNAUTHENTICATED,
        binding: Binding = Binding.STREAMABLE_HTTP,
        view: str | None = None,
        make_challenge: MakeChallenge | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        self.raw: Final = raw
        self.task: Final = _current_task()
        """The task that handles the request. aiohttp's `Request.task` is the task of the connection."""
        self.client_endpoint: Final = client_endpoint
        self.response_headers: Final = response_headers
        self.identity: Final = identity
        """The caller, or `UNAUTHENTICATED` on paths without authentication."""
        self.view: Final = view
        """The view in the path, or None for the whole catalog."""
        self._binding: Final = binding
        self._make_challenge: Final = make_challenge
        self._fields: Final = read_fields(raw) if fields is None else fields
        self._caller: Caller | None = None

    @property
    def caller(self) -> Caller:
        if self._caller is None:
            self._caller = Caller(
                binding=self._binding,
                identity=self.identity,
                view=self.view,
                address=self.client_endpoint.address,
                headers=self._fields,
                access_token=self._access_token(),
            )
        return self._caller

    def _access_token(self) -> Credential | None:
        if self.identity.principal is None:
            # Never pass on credentials that were not checked.
            return None
        return access_token_of(self.identity, self.raw.headers.getall("Authorization", ()))

    @property
    def challenge(self) -> Challenge:
        """The `WWW-Authenticate` challenge for a 401 or 403 response."""
        if self._make_challenge is None:
            return NO_CHALLENGE
        return self._make_challenge(self.client_endpoint, self.raw.path, self.view)

    @property
    def accepted(self) -> Accepted:
        return parse_accept(self._fields.get("accept"))

    @property
    def version(self) -> str | None:
        return self._fields.get(meta.HEADER_PROTOCOL_VERSION)

    @property
    def session_id(self) -> str | None:
        return self._fields.get(_SESSION_FIELD)

    @property
    def last_event_id(self) -> str | None:
        """The `Last-Event-ID` header, or None if the header is missing or empty (WHATWG HTML §9.2.4)."""
        return self._fields.get("last-event-id") or None

    def answer(
        self, value: JsonObject, *, status: int = 200, headers: Mapping[str, str] = MappingProxyType({})
    ) -> web.Response:
        """Return a JSON response that is not an MCP message."""
        fields = {"Content-Type": JSON, **headers, **self.response_headers}
        return web.Response(body=jsonrpc.encode(value), status=status, headers=fields)

    def refuse(
        self, error: HttpError | InvalidMessageError, message: Message | None = None, *, revision: str | None = None
    ) -> web.Response:
        """Return an error response in the format of the message's protocol revision."""
        return refuse(error, headers=self.response_headers, message=message, revision=revision)


Endpoint = Callable[[HttpRequest], Awaitable[web.StreamResponse]]


def _current_task() -> Task:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("not in a task")
    return task
