"""The interface of transports: requests go out, their responses come back, and other messages come by themselves."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import msgspec

from gateway.access.identity.credentials import Credential
from gateway.json_types import JsonObject, empty
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Batch, InvalidMessageError, Notification, Request, RequestId, Response

MAX_DEPTH: Final = 128
"""Levels of a message from an upstream."""

INTERNAL_ERROR: Final = "was given up after an internal error"
"""Why a link is closed whose own code has failed: those who call must not wait for what it will never take."""

Incoming = Request | Notification


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """One request on its way out."""

    id: int
    message: JsonObject
    token: Credential | None = None
    """The access token of the caller, which some ways to sign in exchange."""
    is_own: bool = False
    """Whether it is a request of the gateway, and of no caller."""
    fields: Mapping[str, str] = msgspec.field(default_factory=empty)
    """Header fields for it, where the transport has any."""


class Inbox(Protocol):
    """Takes messages that are no response to a request of ours."""

    def __call__(self, message: Incoming, *, during: RequestId | None) -> None:
        """`during` is the request whose stream the message came on; None where the transport does not tell."""


class Link(Protocol):
    """One connection to a server."""

    has_fields: bool
    """Whether messages have header fields beside them."""
    closed: asyncio.Future[str]
    """Done when nothing can be sent any more, with the reason for people."""

    async def open(self, inbox: Inbox, *, token: Credential | None, is_anonymous: bool) -> None:
        """Connect.

        Args:
            inbox: takes what comes by itself.
            token: the access token of whoever it is for.
            is_anonymous: whether it is no caller's: the gateway's own requests go without credentials where only
                callers have any.

        Raises:
            UnreachableError: it cannot be.
        """

    async def request(self, outgoing: Outgoing) -> Response:
        """Send, and return the response. Cancelling the wait drops it, where the transport does not cancel by itself.

        Raises:
            UpstreamError: no response will come.
        """

    async def send(self, message: JsonObject, fields: Mapping[str, str]) -> None:
        """Send a notification or a response.

        Raises:
            UpstreamError: it could not be sent.
        """

    async def listen(self, fields: Callable[[], Mapping[str, str]]) -> None:
        """Take what comes outside of requests until cancelled, where the transport needs a stream for that."""

    async def close(self) -> None:
        """End the connection, politely if that is quick. Never raises."""


def messages_in(data: bytes) -> list[Incoming | Response]:
    """The messages of a line, an event or a body; what is none is left out.

    What is none but has an id is an error in response to that: the request's caller must not wait for ever.
    """
    try:
        read = jsonrpc.decode(data, max_depth=MAX_DEPTH)
        entries = read.entries if isinstance(read, Batch) else (read,)
    except InvalidMessageError as error:
        entries = (error,)
    messages: list[Incoming | Response] = []
    for each in entries:
        if not isinstance(each, InvalidMessageError):
            messages.append(each)
        elif each.request_id is not None:
            messages.append(Response(each.request_id, None, {"code": each.code, "message": each.message}))
    return messages


class Pending:
    """Responses that are waited for, by request id."""

    def __init__(self) -> None:
        self._waiting: Final[dict[RequestId, asyncio.Future[Response]]] = {}

    def expect(self, request_id: RequestId) -> asyncio.Future[Response]:
        waiting = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        return waiting

    def forget(self, request_id: RequestId) -> None:
        self._waiting.pop(request_id, None)

    def take(self, messages: Iterable[Incoming | Response], inbox: Inbox) -> None:
        """Hand responses to those who wait for them, and other messages to the inbox."""
        for message in messages:
            if not isinstance(message, Response):
                inbox(message, during=None)
            # One that nobody waits for came too late.
            elif (waiting := self._waiting.get(message.id or "")) is not None and not waiting.done():
                waiting.set_result(message)

    def fail(self, error: Exception) -> None:
        """End every wait."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)
