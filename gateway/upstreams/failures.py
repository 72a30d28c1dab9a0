"""The failures of an upstream: what went wrong between it and us, in words for the model and the operator."""

from typing import Final

from gateway.errors import ExecutionError


class UpstreamError(ExecutionError):
    """An upstream could not do what was asked of it; what it answered itself is an `RpcError`."""


class UnreachableError(UpstreamError):
    """No connection came about, or its handshake failed: the request was not begun."""


class ConnectionLostError(UpstreamError):
    """The connection ended while a request was open: the request may have been begun."""


class BadAnswerError(ConnectionLostError):
    """The upstream answered with something that is not a result: an HTTP error, or a body that cannot be read."""


class SessionLostError(UpstreamError):
    """The upstream does not know the session any more: the request was not begun."""


class NoAnswerError(UnreachableError):
    """There was no handshake within `connect_timeout`; the server may still be starting."""


class NotMcpError(UnreachableError):
    """The server that answers does not speak MCP, or not over this transport."""


class RequestRefusedError(UnreachableError):
    """The server takes no such request, or not so many: within a session this says nothing of the session."""


class NoCredentialsError(UpstreamError):
    """There are no credentials for this caller to sign in with: nothing was sent, and the upstream is not to blame."""


class RefusedCredentialsError(UnreachableError):
    """The upstream wants other credentials (HTTP 401 or 403)."""


ANSWERS: Final = (
    BadAnswerError,
    NotMcpError,
    RefusedCredentialsError,
    RequestRefusedError,
    SessionLostError,
)
"""Failures that prove that the upstream is reachable: within a session they concern one request only."""
