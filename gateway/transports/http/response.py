"""Builds HTTP responses from JSON-RPC replies and from errors."""

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from gateway.errors import ErrorCode, RpcError
from gateway.protocol import results
from gateway.protocol.exchange import Reply
from gateway.transports.errors import HttpError
from gateway.wire.accept import JSON
from gateway.wire.jsonrpc import InvalidMessageError, Message, Request

SERVER: Final = {"Server": "mcp-gateway"}
_NO_SNIFFING: Final = {"X-Content-Type-Options": "nosniff"}
"""Browsers must not interpret error responses as HTML, because errors quote the request."""


def whole_response(reply: Reply, *, headers: Mapping[str, str]) -> web.Response:
    if reply.body is None:
        # A notification was accepted, or the request was cancelled.
        return web.Response(status=202 if reply.status == 200 else reply.status, headers=headers)
    return web.Response(body=reply.body, status=reply.status, headers=response_fields(reply, headers))


def response_fields(reply: Reply, headers: Mapping[str, str]) -> Mapping[str, str]:
    fields = {"Content-Type": JSON, **headers}
    if reply.retry_after is not None:
        fields["Retry-After"] = str(reply.retry_after)
    return fields


def refuse(
    error: HttpError | InvalidMessageError,
    *,
    headers: Mapping[str, str],
    message: Message | None = None,
    revision: str | None = None,
) -> web.Response:
    """Return a JSON-RPC error with the HTTP status of `error`, and with the id of `message` if it is a request."""
    if isinstance(error, InvalidMessageError):
        if error.code == ErrorCode.PARSE_ERROR:
            revision = None  # After a parse error, no revision includes the id.
        return whole_response(results.error_reply(error, request_id=None, revision=revision), headers=headers)
    request_id = message.id if isinstance(message, Request) else None
    failure = RpcError(ErrorCode.INVALID_REQUEST, error.message)
    reply = results.error_reply(failure, request_id=request_id, revision=revision, status=error.status)
    return whole_response(reply, headers={**_NO_SNIFFING, **headers, **error.headers})
