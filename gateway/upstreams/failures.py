"""Errors of upstream servers. Models and operators read the messages."""

from typing import Final

from gateway.errors import ExecutionError


class UpstreamError(ExecutionError):
    """The server did not return a proper response. A JSON-RPC error in a response is an `RpcError` instead."""


class UnreachableError(UpstreamError):
    """The connection or handshake failed, so the request was not started."""


class ConnectionLostError(UpstreamError):
    """The connection ended during a request, which the server could have executed."""


class BadAnswerError(ConnectionLostError):
    """The server sent an HTTP error or an unreadable body instead of a result."""


class SessionLostError(UpstreamError):
    """The server no longer knows the session, so the request was not started."""


class NoAnswerError(UnreachableError):
    """The handshake was not complete within `connect_timeout`. The server could still be starting."""


class NotMcpError(UnreachableError):
    """The server does not speak MCP over this transport."""


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
"""Errors that show that the server is reachable."""
