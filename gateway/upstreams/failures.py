"""Errors of requests to upstream servers. Models and operators read the messages."""

from typing import Final

from gateway.errors import ExecutionError


class UpstreamError(ExecutionError):
    """A request to an upstream server failed. JSON-RPC errors in responses are `RpcError` instead."""


class UnreachableError(UpstreamError):
    """The request was not executed, because the connection or the handshake failed."""


class ConnectionLostError(UpstreamError):
    """The connection ended during a request. The server could have executed the request."""


class BadAnswerError(ConnectionLostError):
    """The server sent an HTTP error or an unreadable body instead of a result."""


class SessionLostError(UpstreamError):
    """The session has ended on the server, so the request was not executed."""


class NoAnswerError(UnreachableError):
    """The handshake was not complete within `connect_timeout`. The server could still be starting."""


class NotMcpError(UnreachableError):
    """The server does not use MCP over this transport."""


class RequestRefusedError(UnreachableError):
    """The server refused one request because of its content, size or rate."""


class NoCredentialsError(UpstreamError):
    """The caller has no credentials. Nothing was sent."""


class RefusedCredentialsError(UnreachableError):
    """The server refused the credentials (HTTP 401 or 403)."""


ANSWERS: Final = (
    BadAnswerError,
    NotMcpError,
    RefusedCredentialsError,
    RequestRefusedError,
    SessionLostError,
)
"""Errors that prove that the server can be reached."""
