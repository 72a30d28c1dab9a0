"""The interface of transports: requests go out, their responses come back, and other messages come by themselves."""

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Protocol

import msgspec

from gateway.access.subject import Subject
from gateway.errors import ErrorCode
from gateway.json_types import Json, JsonObject, empty
from gateway.upstreams.failures import BadAnswerError
from gateway.wire import jsonrpc
from gateway.wire.event_parser import EventParser
from gateway.wire.jsonrpc import Batch, InvalidMessageError, Notification, Request, RequestId, Response

MAX_DEPTH: Final = 128
"""Levels of a message from an upstream."""

INTERNAL_ERROR: Final = "was given up after an internal error"
"""Why a link is closed whose own code has failed: those who call must not wait for what it will never take."""

_MAX_REPAIRED: Final = 8 * 2**20
"""Bytes: larger malformed messages are not repaired, because Python's own parser would block the event loop."""
_EXCERPT: Final = 200
_ENDS: Final = 4096
"""Bytes at each end of an unreadable message in which its id is looked for."""
_TEXT: Final = rb'"(?:[^"\\]|\\.)*"'
_ID: Final = rb'"id"\s*:\s*(?:(\d+)|"(\d+)")'
# Only members with texts before it, or after it: such an id is the message's own, not that of something in a result.
_FIRST_ID: Final = re.compile(rb"\s*\{\s*(?:%b\s*:\s*%b\s*,\s*)*%b" % (_TEXT, _TEXT, _ID))
_LAST_ID: Final = re.compile(rb"%b\s*(?:,\s*%b\s*:\s*%b\s*)*\}\s*\Z" % (_ID, _TEXT, _TEXT))
# The id of such a message is the server's own.
_REQUEST: Final = re.compile(rb'\s*\{[^{\[]*"method"\s*:')
_ID_DIGITS: Final = 18
_MEMBERS: Final = frozenset({"id", "method", "params", "result", "error"})


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is not valid JSON, whether it could be repaired or not."""

    reason: str
    excerpt: str
    """Its beginning."""
    answers: int | None = None
    """The id of the request that it should have answered, if it could not be repaired."""


Incoming = Request | Notification | Unreadable


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """One request on its way out."""

    id: int
    message: JsonObject
    subject: Subject | None = None
    """The caller that the request is authenticated as, where the server authenticates callers."""
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
    noise: str
    """The first thing that the server sent that is not a message; empty once it has sent a message."""
    closed: asyncio.Future[str]
    """Done when nothing can be sent any more, with the reason for people."""

    async def open(self, inbox: Inbox, *, subject: Subject | None) -> None:
        """Connect.

        Args:
            inbox: takes what comes by itself.
            subject: the caller that the session is for; None for the gateway's own session.

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

    async def listen(self, fields: Callable[[], Mapping[str, str]], ping: Callable[[], Awaitable[object]]) -> None:
        """Take what comes outside of requests until cancelled, where the transport needs a stream for that.

        `ping` asks whether the server still knows the session.
        """

    async def close(self) -> None:
        """End the connection, politely if that is quick. Never raises."""


def messages_in(data: bytes) -> list[Incoming | Response]:
    """The messages of a line, an event or a body.

    Malformed messages are repaired where their meaning is clear. One that cannot be repaired but has an id is an error
    in response to that: the request's caller must not wait for the timeout. Anything else is left out.
    """
    messages: list[Incoming | Response] = []
    read: list[jsonrpc.Message | InvalidMessageError]
    try:
        read = [jsonrpc.decode(data, max_depth=MAX_DEPTH)]
    except InvalidMessageError as error:
        read = _repaired(data)
        # Programs also greet or log on their standard output: only what looks like a message is reported.
        if error.code == ErrorCode.PARSE_ERROR and (read or data.lstrip(b"\xef\xbb\xbf \t[").startswith(b"{")):
            messages.append(unreadable(data, error.message, is_repaired=bool(read)))
    for each in read[0].entries if read and isinstance(read[0], Batch) else read:
        if isinstance(each, Response) and isinstance(each.id, str):
            # Our ids are integers; some servers return them as text.
            messages.append(Response(own_id(each.id), each.result, each.error))
        elif isinstance(each, Request | Notification | Response):
            messages.append(each)
        elif isinstance(each, InvalidMessageError) and each.request_id is not None:
            messages.append(Response(own_id(each.request_id), None, {"code": each.code, "message": each.message}))
    return messages


def messages_at_end(parser: EventParser) -> list[Incoming | Response]:
    """The messages of an event that the end of its stream cut off, if its data is complete."""
    if (event := parser.end()) is None:
        return []
    try:
        jsonrpc.decode(event.data, max_depth=MAX_DEPTH)
    except InvalidMessageError:
        return []
    return messages_in(event.data)


def unreadable(data: bytes, reason: str, *, end: bytes = b"", is_repaired: bool = False) -> Unreadable:
    """Describe a message that cannot be read; `end` is its end, if `data` is only its beginning."""
    found = None
    if not is_repaired and not _REQUEST.match(data[:_ENDS]):
        found = _FIRST_ID.match(data[:_ENDS]) or _LAST_ID.search((end or data)[-_ENDS:])
    return Unreadable(
        reason=reason,
        excerpt=data[:_EXCERPT].decode(errors="replace"),
        answers=None if found is None else int(found[1] or found[2]),
    )


def own_id(value: Json) -> RequestId | None:
    """Return an id of ours that a server has sent back, perhaps as text or as a float."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.isdecimal() and len(value) <= _ID_DIGITS:
        return int(value)
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def _repaired(data: bytes) -> list[jsonrpc.Message | InvalidMessageError]:
    """Read the messages of a text that breaks JSON or JSON-RPC in a usual way."""
    text = data.decode("utf-8-sig", errors="replace").strip() if len(data) <= _MAX_REPAIRED else ""
    found: list[jsonrpc.Message | InvalidMessageError] = []
    end = 0
    # A program may have printed something before a message, and not ended its line.
    while (start := _OBJECT.search(text, end)) is not None:
        try:
            value, end = _SLOPPY.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            break
        if (entry := _conventional(value, is_alone=end - start.start() == len(text))) is None:
            continue
        # Half of a surrogate pair has no UTF-8: U+FFFD takes its place.
        units = json.dumps(entry, ensure_ascii=False).encode("utf-16-le", "surrogatepass")
        try:
            found.append(jsonrpc.decode(units.decode("utf-16-le", errors="replace").encode(), max_depth=MAX_DEPTH))
        except InvalidMessageError as error:
            found.append(error)
    return found


def _conventional(entry: JsonObject, *, is_alone: bool) -> JsonObject | None:
    """A message as JSON-RPC has it; None if it is none, such as a line of a log that is JSON."""
    if "jsonrpc" not in entry and not (is_alone and entry.keys() <= _MEMBERS):
        return None
    fixed = {**entry, "jsonrpc": jsonrpc.VERSION}
    if "method" in entry:
        return {**fixed, "params": entry["params"] if isinstance(entry.get("params"), dict) else {}}
    if "id" in entry:
        fixed["id"] = own_id(entry["id"])
    for member, other in (("error", "result"), ("result", "error")):
        if fixed.get(member) is None and other in fixed:
            fixed.pop(member, None)
    return fixed


# `strict=False` takes control characters within strings. Numbers that JSON does not have become null.
_OBJECT: Final = re.compile(r'\{\s*"')
_SLOPPY: Final = json.JSONDecoder(
    strict=False,
    parse_constant=lambda _: None,
    parse_float=lambda text: number if math.isfinite(number := float(text)) else None,
)


class Pending:
    """Responses that are waited for, by request id."""

    def __init__(self) -> None:
        self._waiting: Final[dict[RequestId, asyncio.Future[Response]]] = {}
        self._has_notified = False
        """Whether an error without an id may be about a notification or response that was sent."""

    def expect(self, request_id: RequestId) -> asyncio.Future[Response]:
        waiting = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        return waiting

    def note_notification(self) -> None:
        """Note that something other than a request is sent."""
        self._has_notified = True

    def forget(self, request_id: RequestId) -> None:
        self._waiting.pop(request_id, None)

    def take(self, messages: Iterable[Incoming | Response], inbox: Inbox) -> None:
        """Hand responses to those who wait for them, and other messages to the inbox."""
        for each in messages:
            message = self._attributed(each) if isinstance(each, Response) else each
            if not isinstance(message, Response):
                inbox(message, during=None)
                if not isinstance(message, Unreadable):
                    continue
            request_id = message.id if isinstance(message, Response) else message.answers
            # One that nobody waits for came too late.
            if (waiting := self._waiting.get(request_id or "")) is None or waiting.done():
                continue
            if isinstance(message, Response):
                self._has_notified = False
                waiting.set_result(message)
            else:
                waiting.set_exception(BadAnswerError(f"answers with a message that cannot be read: {message.reason}"))

    def _attributed(self, response: Response) -> Response | Unreadable:
        """Assign an error without an id (JSON-RPC 2.0 §5) to the only open request, if there is just one."""
        if response.id is not None or response.error is None:
            return response
        open_ids = [request_id for request_id, waiting in self._waiting.items() if not waiting.done()]
        if not open_ids:
            return response
        if len(open_ids) == 1 and not self._has_notified:
            return Response(open_ids[0], None, response.error)
        self._has_notified = False
        return Unreadable(reason="an error without a request id", excerpt=str(response.error)[:_EXCERPT])

    def fail(self, error: Exception) -> None:
        """End every wait."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)
                waiting.exception()  # whoever waited may have been cancelled meanwhile
