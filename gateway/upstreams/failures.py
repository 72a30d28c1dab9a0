"""Errors of upstreams. The messages are for models and operators."""

from typing import Final

from gateway.errors import ExecutionError


class UpstreamError(ExecutionError):
    """An upstream did not respond as it should. The upstream's own errors are `RpcError`s."""


class UnreachableError(UpstreamError):
    """The connection or its handshake failed, so the request was not begun."""


class ConnectionLostError(UpstreamError):
    """The connection ended during a request, which may have been begun."""


class BadAnswerError(ConnectionLostError):
    """The upstream sent an HTTP error or an unreadable body instead of a result."""


class SessionLostError(UpstreamError):
    """The upstream no longer knows the session, so the request was not begun."""


class NoAnswerError(UnreachableError):
    """There was no handshake within `connect_timeout`. The server may still be starting."""


class NotMcpError(UnreachableError):
    """The server does not speak MCP, or not over this transport."""


class RequestRefusedError(UnreachableError):
    """The server refuses a request because of its content, size or rate. The session continues."""


class NoCredentialsError(UpstreamError):
    """There are no credentials for this caller. Nothing was sent."""


class RefusedCredentialsError(UnreachableError):
    """The upstream refuses the credentials (HTTP 401 or 403)."""


ANSWERS: Final = (
    BadAnswerError,
    NotMcpError,
    RefusedCredentialsError,
    RequestRefusedError,
    SessionLostError,
)
"""Errors that prove that the upstream is reachable. In a session, they concern one request only."""
