"""Defines the transport interface, and parses JSON-RPC messages, including malformed ones."""

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol

import msgspec

from gateway.access.identity import Subject
from gateway.errors import ErrorCode
from gateway.json_types import Json, JsonObject
from gateway.upstreams.failures import BadAnswerError
from gateway.wire import jsonrpc
from gateway.wire.event_parser import EventParser
from gateway.wire.jsonrpc import Batch, InvalidMessageError, Notification, Request, RequestId, Response

MAX_DEPTH: Final = 128
INTERNAL_ERROR: Final = "failed because of an internal error"

_MAX_REPAIRED: Final = 8 * 2**20
"""Larger messages (in bytes) are not repaired, because the repair blocks the event loop."""
_EXCERPT: Final = 200
_ENDS: Final = 4096
"""Number of bytes at the start and the end of an unreadable message that are searched for the message id."""
_TEXT: Final = rb'"(?:[^"\\]|\\.)*"'
_ID: Final = rb'"id"\s*:\s*(?:(\d+)|"(\d+)")'
# Only string members can precede or follow the id, so that the id of an object in the result does not match.
_FIRST_ID: Final = re.compile(rb"\s*\{\s*(?:%b\s*:\s*%b\s*,\s*)*%b" % (_TEXT, _TEXT, _ID))
_LAST_ID: Final = re.compile(rb"%b\s*(?:,\s*%b\s*:\s*%b\s*)*\}\s*\Z" % (_ID, _TEXT, _TEXT))
# Requests of the server do not count, because their ids do not refer to requests of the gateway.
_REQUEST: Final = re.compile(rb'\s*\{[^{\[]*"method"\s*:')
_ID_DIGITS: Final = 18
_MEMBERS: Final = frozenset({"id", "method", "params", "result", "error"})


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    reason: str
    excerpt: str
    answers: int | None = None
    """Id of the request that the unreadable message responds to, if known."""


Incoming = Request | Notification | Unreadable


Inbox = Callable[[Incoming, RequestId | None], object]
"""A callback for requests, notifications and unreadable messages from the server.

The second argument is the id of the request whose response stream contained the message, or None.
"""


class Link(Protocol):
    transport: str
    """`http`, `sse` or `stdio`."""
    non_mcp_output: str
    """The start of the output before the first MCP message, or an empty string. Error messages quote this text."""
    closed: asyncio.Future[str]
    """Completes when no more messages can be sent. The result is the reason."""

    async def open(self, inbox: Inbox, *, subject: Subject | None) -> None:
        """Connect, or raise UnreachableError. `inbox` receives messages that are not responses."""

    async def request(self, message: JsonObject, fields: Mapping[str, str], *, subject: Subject | None) -> Response:
        """Send a request and return the response. `subject` is the caller, or None for the gateway's own requests.

        Raise UpstreamError if the request fails.
        """

    async def send(self, message: JsonObject, fields: Mapping[str, str]) -> None:
        """Send a notification or a response. Raise UpstreamError if sending fails."""

    async def listen(self, fields: Callable[[], Mapping[str, str]], ping: Callable[[], Awaitable[object]]) -> None:
        """Receive messages that belong to no request, until cancelled. `ping` checks that the session still exists."""

    async def close(self) -> None:
        """Close the connection. Errors are not raised."""


def messages_in(data: bytes) -> list[Incoming | Response]:
    """Parse the messages in a line of output, the data of an event, or an HTTP body.

    Malformed messages are repaired if their meaning is clear. Otherwise, the result contains an `Unreadable` message.
    """
    messages: list[Incoming | Response] = []
    read: list[jsonrpc.Message | InvalidMessageError]
    try:
        read = [jsonrpc.decode(data, max_depth=MAX_DEPTH)]
    except InvalidMessageError as error:
        read = _repaired(data)
        # Programs also log to standard output, so only text that looks like a message is reported.
        if error.code == ErrorCode.PARSE_ERROR and (read or data.lstrip(b"\xef\xbb\xbf \t[").startswith(b"{")):
            messages.append(unreadable(data, error.message, is_repaired=bool(read)))
    for each in read[0].entries if read and isinstance(read[0], Batch) else read:
        if isinstance(each, Response) and isinstance(each.id, str):
            # Some servers return our integer ids as strings.
            messages.append(Response(own_id(each.id), each.result, each.error))
        elif isinstance(each, Request | Notification | Response):
            messages.append(each)
        elif isinstance(each, InvalidMessageError) and each.request_id is not None:
            messages.append(Response(own_id(each.request_id), None, {"code": each.code, "message": each.message}))
    return messages


def messages_at_end(parser: EventParser) -> list[Incoming | Response]:
    """Return the messages of a last event that is not followed by a blank line, if its data is complete JSON."""
    data = parser.unfinished
    try:
        jsonrpc.decode(data, max_depth=MAX_DEPTH)
    except InvalidMessageError:
        return []
    return messages_in(data)


def unreadable(data: bytes, reason: str, *, end: bytes = b"", is_repaired: bool = False) -> Unreadable:
    """Describe an unreadable message. If `data` is only the start of the message, `end` is its end."""
    found = None
    if not is_repaired and not _REQUEST.match(data[:_ENDS]):
        found = _FIRST_ID.match(data[:_ENDS]) or _LAST_ID.search((end or data)[-_ENDS:])
    return Unreadable(
        reason=reason,
        excerpt=data[:_EXCERPT].decode(errors="replace"),
        answers=None if found is None else int(found[1] or found[2]),
    )


def own_id(value: Json) -> RequestId | None:
    """Return a request id as the gateway sent it. Some servers return integer ids as strings or floats."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.isdecimal() and len(value) <= _ID_DIGITS:
        return int(value)
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def _repaired(data: bytes) -> list[jsonrpc.Message | InvalidMessageError]:
    text = data.decode("utf-8-sig", errors="replace").strip() if len(data) <= _MAX_REPAIRED else ""
    found: list[jsonrpc.Message | InvalidMessageError] = []
    end = 0
    # Skip text that the program printed on the same line.
    while len(found) < jsonrpc.MAX_BATCH and (start := _OBJECT.search(text, end)) is not None:
        try:
            value, end = _SLOPPY.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            break
        if (entry := _conventional(value, is_alone=end - start.start() == len(text))) is None:
            continue
        # Half of a surrogate pair has no UTF-8 form, and is replaced by U+FFFD.
        units = json.dumps(entry, ensure_ascii=False).encode("utf-16-le", "surrogatepass")
        try:
            found.append(jsonrpc.decode(units.decode("utf-16-le", errors="replace").encode(), max_depth=MAX_DEPTH))
        except InvalidMessageError as error:
            found.append(error)
    return found


def _conventional(entry: JsonObject, *, is_alone: bool) -> JsonObject | None:
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


# `strict=False` accepts control characters in strings. Numbers that JSON does not support, such as NaN, become null.
_OBJECT: Final = re.compile(r'\{\s*"')
_SLOPPY: Final = json.JSONDecoder(
    strict=False,
    parse_constant=lambda _: None,
    parse_float=lambda text: number if math.isfinite(number := float(text)) else None,
)


class Pending:
    def __init__(self) -> None:
        self._waiting: Final[dict[RequestId, asyncio.Future[Response]]] = {}
        self._has_notified = False
        """Whether an error without an id may concern a notification or response."""

    @contextmanager
    def expecting(self, request_id: RequestId) -> Iterator[asyncio.Future[Response]]:
        waiting = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        try:
            yield waiting
        finally:
            self._waiting.pop(request_id, None)

    def note_notification(self) -> None:
        self._has_notified = True

    def take(self, messages: Iterable[Incoming | Response], inbox: Inbox) -> None:
        """Pass responses to the requests that wait for them, and other messages to the inbox."""
        for each in messages:
            message = self._attributed(each) if isinstance(each, Response) else each
            if not isinstance(message, Response):
                inbox(message, None)
                if not isinstance(message, Unreadable):
                    continue
            request_id = message.id if isinstance(message, Response) else message.answers
            # Ignore responses to cancelled requests.
            if (waiting := self._waiting.get(request_id or "")) is None or waiting.done():
                continue
            if isinstance(message, Response):
                self._has_notified = False
                waiting.set_result(message)
            else:
                waiting.set_exception(BadAnswerError(f"sent an invalid message: {message.reason}"))

    def _attributed(self, response: Response) -> Response | Unreadable:
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
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)
                waiting.exception()  # marks the exception as retrieved
