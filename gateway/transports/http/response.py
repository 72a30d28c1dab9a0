"""Whole HTTP responses: replies of the protocol, and refusals before it. A plain reply leaves in one write."""

import time
from collections.abc import Mapping
from email.utils import formatdate
from functools import lru_cache
from typing import Final

from aiohttp import HttpVersion11, hdrs, web

from gateway.errors import ErrorCode, RpcError
from gateway.protocol import results
from gateway.protocol.exchange import Reply
from gateway.transports.errors import HttpError
from gateway.wire.accept import JSON
from gateway.wire.jsonrpc import InvalidMessageError, Message, Request

SERVER: Final = {"Server": "mcp-gateway"}
_NO_SNIFFING: Final = {"X-Content-Type-Options": "nosniff"}
"""Refusals quote what was sent: no browser may take one for a page."""


def whole_response(reply: Reply, *, headers: Mapping[str, str]) -> web.Response:
    """A reply as a response that is no stream."""
    if reply.body is None:
        # Nothing to say: a notification was taken, or the request was cancelled.
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
    """A refusal as an HTTP status and a JSON-RPC error, under the message's id if it is a request."""
    if isinstance(error, InvalidMessageError):
        if error.code == ErrorCode.PARSE_ERROR:
            revision = None  # over HTTP the status answers what is not JSON; its body names no id in any revision
        return whole_response(results.error_reply(error, request_id=None, revision=revision), headers=headers)
    request_id = message.id if isinstance(message, Request) else None
    failure = RpcError(ErrorCode.INVALID_REQUEST, error.message)
    reply = results.error_reply(failure, request_id=request_id, revision=revision, status=error.status)
    return whole_response(reply, headers={**_NO_SNIFFING, **headers, **error.headers})


def takes_one_write(raw: web.Request, headers: Mapping[str, str]) -> bool:
    """Tell whether `OneWriteResponse` does all that an answer to this request needs."""
    # aiohttp goes on with what came behind an upgrade, which nobody takes up, when it writes the response itself.
    is_plain = raw.version == HttpVersion11 and raw.keep_alive and hdrs.UPGRADE not in raw.headers
    return is_plain and "Connection" not in headers


class OneWriteResponse(web.StreamResponse):
    """A JSON answer with status 200 on a connection that stays open, its head and body in one write.

    The head is the same for all answers with the same fields, but for its length and its date, so it is rendered once.
    `HttpConnection.finish_response` writes it.
    """

    def __init__(self, body: bytes, *, headers: Mapping[str, str]) -> None:
        super().__init__()
        self._content: Final = body
        self._fields: Final = headers

    @property
    def keep_alive(self) -> bool:
        return super().keep_alive is not False  # `force_close` was not called

    def render(self) -> bytes:
        """Return the response as it goes out.

        Raises:
            ValueError: a header field holds a line break.
        """
        return b"%bContent-Length: %d\r\nDate: %b\r\n\r\n%b" % (
            _rendered(tuple(self._fields.items())),
            len(self._content),
            _date(int(time.time())),
            self._content,
        )


@lru_cache(maxsize=256)
def _rendered(fields: tuple[tuple[str, str], ...]) -> bytes:
    """The status line and these fields.

    Raises:
        ValueError: one would end before its end (RFC 9110 §5.5).
    """
    lines = ["HTTP/1.1 200 OK", f"Content-Type: {JSON}", *(f"{name}: {value}" for name, value in fields)]
    # aiohttp checks the fields that it writes itself; these it never sees.
    if any(mark in line for line in lines for mark in "\r\n\0"):
        raise ValueError("a header field holds a line break")
    return "".join(f"{line}\r\n" for line in lines).encode()


@lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    """RFC 9110 §6.6.1: a server with a clock says when it answered."""
    return formatdate(second, usegmt=True).encode()
