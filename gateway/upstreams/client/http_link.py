"""The client side of the Streamable HTTP transport. `HttpChannel` is also used for HTTP+SSE.

Each message is sent in a POST request. The response is a JSON body or an event stream. Revisions 2025-03-26 to
2025-11-25 (basic/transports) also specify sessions, resumable streams, and a GET stream for messages that belong to no
request. Servers of 2026-07-28 support none of these.

Threats:

- A server leads the gateway to a forbidden address: `AddressGuard` checks each address.
- A redirect passes credentials to another server: only redirects within the origin are followed.
- A response never ends: all readers limit the size.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from itertools import count
from time import monotonic
from typing import Final, TypeVar

import aiohttp
from msgspec.structs import replace
from yarl import URL

from gateway.access.identity import Subject
from gateway.errors import ExecutionError, RpcError
from gateway.json_types import JsonObject
from gateway.net.address_guard import AddressRefusedError
from gateway.net.authorization import Authorization
from gateway.net.clients import Answer, BodyTooLargeError
from gateway.net.request import REJECTIONS, Rejection, Request, bound, origin_of, parse_url
from gateway.net.sender import Sender, TooManyRedirectsError, explained
from gateway.upstreams.client.link import Inbox, Incoming, Unreadable, messages_at_end, messages_in
from gateway.upstreams.failures import (
    ANSWERS,
    BadAnswerError,
    ConnectionLostError,
    NoCredentialsError,
    NotMcpError,
    RefusedCredentialsError,
    RequestRefusedError,
    SessionLostError,
    UnreachableError,
    UpstreamError,
)
from gateway.wire import jsonrpc
from gateway.wire.event_parser import Event, EventParser, EventTooLargeError
from gateway.wire.jsonrpc import Response

T = TypeVar("T")

SESSION: Final = "Mcp-Session-Id"
# MCP 2025-06-18 basic/transports, "Sending Messages to the Server": a POST must accept both media types.
_ACCEPT: Final = "application/json, text/event-stream"
_EVENT_STREAM: Final = "text/event-stream"
# Prefixes of header fields that mirror the body.
_OF_A_REQUEST: Final = ("mcp-method", "mcp-name", "mcp-param-")
_MAX_RESUMPTIONS: Final = 20
_FIRST_PAUSE: Final = 1.0
_MAX_PAUSE: Final = 60.0
_SHORT: Final = 5.0
"""After a GET stream that ends within this number of seconds, the delay before the next one is doubled."""
LEAST_PAUSE: Final = 0.1
_DELETE_SECONDS: Final = 2.0
_SESSION_NOT_FOUND: Final = -32001
"""The JSON-RPC error code that several SDKs use for an unknown session. Other errors also have this code."""
MAX_BODY: Final = 32 * 2**20
_MAX_REDIRECTS: Final = 3
_EXCERPT: Final = 300
# RFC 9110 §15.5.14, §15.5.15, §15.5.21, RFC 6585 §4, §5: errors that concern one request.
_OF_THE_REQUEST: Final = frozenset({413, 414, 422, 429, 431})
_LOSS: Final = (
    r"\b(?:not found|unknown|expired|invalid|no longer|terminated|not exist|n.t exist|ended|closed|no such)\b"
)
_SESSION: Final = r"\bsession(?:[ _-]?id)?\b(?![ _-]?(?:token|cookie))"
_LOST_SESSION: Final = re.compile(rf"{_SESSION}.{{0,80}}{_LOSS}|{_LOSS}.{{0,20}}{_SESSION}", re.IGNORECASE | re.DOTALL)
"""Matches errors about an unknown or expired session, but not about a token."""


class HttpChannel:
    def __init__(
        self, url: URL, *, headers: Mapping[str, str], sender: Sender, authorization: Authorization | None = None
    ) -> None:
        self.url = url
        self.subject: Subject | None = None
        """The caller of the newest request. Requests of the gateway itself are authenticated as this caller."""
        self._headers: Final = headers
        self._authorization: Final = authorization
        self._sender: Final = replace(sender, max_redirects=_MAX_REDIRECTS, redirect=self._redirected)

    @asynccontextmanager
    async def exchange(
        self,
        method: str,
        *,
        fields: Mapping[str, str],
        body: bytes | None = None,
        url: URL | None = None,
        subject: Subject | None = None,
    ) -> AsyncIterator[Answer]:
        """Send a request and yield the response.

        The request uses the credentials of `subject`, or by default of the last caller in this session.

        Raises:
            NoCredentialsError: the caller has no credentials.
            UnreachableError: nothing was sent.
            ConnectionLostError: the response is missing or incomplete.
        """
        if subject is None and self.subject is not None:
            subject = replace(self.subject, is_calling=False)
        url = url or self.url
        request = Request(method=method, url=url, headers=bound({**self._headers, **fields}), body=body)
        host = url.raw_host or ""
        authorization = self._authorization
        try:
            for attempt in count(1):
                signed = request
                if authorization is not None:
                    signed = await _authenticated(authorization.sign(request, subject))
                async with self._sender.exchange(signed) as answer:
                    # RFC 6750 §3.1: a token can be revoked before it expires (`invalid_token`).
                    rejected = Rejection(signed, answer.status, answer.headers, attempt)
                    if (
                        authorization is None
                        or answer.status not in REJECTIONS
                        or not await _authenticated(authorization.renew(rejected, subject))
                    ):
                        self.subject = subject or self.subject  # a session outlives the tokens of its caller
                        yield answer
                        return
        except TooManyRedirectsError as error:
            raise NotMcpError(f"{host} redirects too many times") from error
        except ExecutionError as error:
            if isinstance(error.__cause__, aiohttp.ClientConnectorError | AddressRefusedError | aiohttp.InvalidURL):
                raise UnreachableError(_reason(error)) from error
            if isinstance(error.__cause__, aiohttp.ClientError):
                raise ConnectionLostError(_reason(error)) from error
            raise
        except (TimeoutError, ConnectionError) as error:
            raise ConnectionLostError(_reason(explained(error, host=host))) from error

    def _redirected(self, request: Request, status: int, location: str) -> Request | None:
        if status == 303:  # RFC 9110 §15.4.4: the next request would be a GET without the message
            return None
        url = request.url
        try:
            target = url.join(parse_url(location))
        except ValueError as error:
            raise NotMcpError(f"{url.raw_host} redirects to an invalid URL") from error
        # The request contains credentials for this server.
        if origin_of(target) != origin_of(url):
            raise NotMcpError(f"{url.raw_host} redirects to another origin, {target.origin()}. Use it as `url`.")
        # Later requests go to the new URL. A GET can lead to a page for browsers, and 302 to a sign-in page.
        if url == self.url and request.method == "POST" and status != 302:
            self.url = target
        return replace(request, url=target)


async def _authenticated(step: Awaitable[T]) -> T:
    try:
        return await step
    except ExecutionError as error:
        raise NoCredentialsError(str(error)) from error


async def read_body(answer: Answer) -> bytes:
    """Read the body of a response. Raise BadAnswerError if the body is longer than `MAX_BODY` bytes."""
    try:
        return await answer.read(max_bytes=MAX_BODY)
    except BodyTooLargeError:
        raise BadAnswerError(f"sent more than {MAX_BODY // 2**20} MiB") from None


def refusal(answer: Answer, body: bytes, *, has_session: bool) -> Exception:
    """Return the exception for an HTTP error response. With `has_session`, the session can have ended."""
    text = body[:_EXCERPT].decode(errors="replace").strip()
    said = f"responds with {answer.status} {answer.reason}".rstrip()
    full = f"{said}: {text}" if text else said
    # MCP 2025-06-18 basic/transports, "Session Management": the status is 404, but some servers use other statuses.
    if has_session and (answer.status in {404, 410} or _reports_lost_session(answer, text)):
        return SessionLostError(f"the session has ended ({full})")
    if answer.status in {401, 403}:
        return RefusedCredentialsError(
            full if text and answer.status != 401 else f"{said}, so it requires different credentials"
        )
    if answer.status >= 500:
        return BadAnswerError(full)
    kind = RequestRefusedError if answer.status in _OF_THE_REQUEST else NotMcpError
    return kind(full)


def _reports_lost_session(answer: Answer, text: str) -> bool:
    if answer.status == 401:
        # RFC 6750 §3.1: an error code in the challenge concerns the access token.
        return _LOST_SESSION.search(text) is not None and "error=" not in answer.headers.get("WWW-Authenticate", "")
    # The TypeScript SDK sends "Server not initialized".
    pattern = re.compile("session|not initialized", re.IGNORECASE)
    return answer.status in {400, 404, 410, 422, 503} and pattern.search(text) is not None


def _reason(error: ExecutionError) -> str:
    system = getattr(error.__cause__, "os_error", None)
    if isinstance(error.__cause__, aiohttp.ClientConnectorError) and isinstance(system, ConnectionRefusedError):
        return "connection refused"
    said = str(error)
    return said[:1].lower() + said[1:] if said.startswith(("Cannot", "The ", "No ")) else said


class HttpLink:
    """A session over Streamable HTTP. If the server assigns no session id, requests have no `Mcp-Session-Id`."""

    transport = "http"
    non_mcp_output = ""

    def __init__(self, channel: HttpChannel) -> None:
        self._channel: Final = channel
        self._inbox: Inbox
        self.session_id: str | None = None
        self.closed: asyncio.Future[str]

    async def open(self, inbox: Inbox, *, subject: Subject | None) -> None:
        self._channel.subject = subject
        self._inbox = inbox
        self.closed = asyncio.get_running_loop().create_future()

    async def request(self, message: JsonObject, fields: Mapping[str, str], *, subject: Subject | None) -> Response:
        request_id, seen, response = message["id"], _StreamPosition(), None
        async with self._post(message, fields, subject) as answer:
            if answer.status == 200 and answer.media_type == _EVENT_STREAM:
                self._note_session(answer)
                response = await self._response_in(answer, request_id, seen)
            else:
                response = await self._single(answer, request_id)
        if response is None:
            response = await self._resumed(request_id, seen, fields)
        if self.session_id is not None and _is_session_lost(response):
            reason = f"the session has ended ({response.error['message']})"
            self._lost(reason)
            raise SessionLostError(reason)
        return response

    async def send(self, message: JsonObject, fields: Mapping[str, str]) -> None:
        async with self._post(message, fields) as answer:
            if answer.status >= 400:
                raise self._refused(answer, await read_body(answer))

    def _post(
        self, message: JsonObject, fields: Mapping[str, str], subject: Subject | None = None
    ) -> AbstractAsyncContextManager[Answer]:
        fields = {"Content-Type": "application/json", "Accept": _ACCEPT, **self._of_session(), **fields}
        return self._channel.exchange("POST", fields=fields, body=jsonrpc.encode(message), subject=subject)

    async def listen(self, fields: Callable[[], Mapping[str, str]], ping: Callable[[], Awaitable[object]]) -> None:
        """Read messages from the GET stream, and reopen the stream when it ends.

        Return if the server offers no GET stream. If the server refuses to reopen the stream, call `ping`, which
        detects whether the session still exists.
        """
        seen, pause, has_begun = _StreamPosition(), _FIRST_PAUSE, False
        while not self.closed.done():
            began, events_before = monotonic(), seen.events
            try:
                async with self._stream(seen, fields()) as answer:
                    if answer is not None:
                        has_begun = True
                        await self._response_in(answer, None, seen)
                    elif not has_begun:
                        return
            except UpstreamError as error:
                if isinstance(error, ANSWERS):
                    if not has_begun:
                        return
                    seen.event_id = None
                    with suppress(RpcError, UpstreamError, TimeoutError):
                        async with asyncio.timeout(_SHORT):
                            await ping()
            if seen.events > events_before or monotonic() - began > _SHORT:
                pause = _FIRST_PAUSE if seen.retry is None else max(LEAST_PAUSE, seen.retry)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE)

    async def close(self) -> None:
        is_lost = self.closed.done()
        self._lost("was closed")
        if self.session_id is None or is_lost:
            return
        # 2025-06-18 basic/transports, "Session Management": DELETE ends a session, but a server can refuse it with 405.
        with suppress(UpstreamError, TimeoutError):
            async with asyncio.timeout(_DELETE_SECONDS), self._channel.exchange("DELETE", fields=self._of_session()):
                self.session_id = None

    def _of_session(self) -> dict[str, str]:
        return {} if self.session_id is None else {SESSION: self.session_id}

    def _note_session(self, answer: Answer) -> None:
        if self.session_id is None:
            self.session_id = answer.headers.get(SESSION)

    async def _single(self, answer: Answer, request_id: int) -> Response:
        body = await read_body(answer)
        if (response := self._response_among(messages_in(body), request_id, alone=True)) is not None:
            if answer.status < 400:
                self._note_session(answer)
            # An error with the id of the request concerns the request, unless it mentions the session.
            is_own = response.id is not None and not _reports_lost_session(answer, repr(response.error)[:_EXCERPT])
            if answer.status < 400 or is_own or self.session_id is None:
                return response
        if answer.status < 400:
            # The server could have run the request.
            said = f"responds with {answer.status} {answer.media_type} instead of JSON or an event stream"
            if answer.media_type == "application/json":
                said = f"responds with {answer.status} without a JSON-RPC response to the request"
            raise BadAnswerError(said)
        raise self._refused(answer, body)

    def _refused(self, answer: Answer, body: bytes) -> Exception:
        error = refusal(answer, body, has_session=self.session_id is not None)
        if isinstance(error, SessionLostError):
            self._lost(str(error))
        return error

    async def _response_in(self, answer: Answer, request_id: int | None, seen: "_StreamPosition") -> Response | None:
        parser, pending, tried = EventParser(), 0, 0
        try:
            async for chunk in answer.content.iter_any():
                pending += len(chunk)
                for event in parser.feed(chunk):
                    pending = tried = 0
                    seen.note(event)
                    if (
                        event.data
                        and (response := self._response_among(messages_in(event.data), request_id)) is not None
                    ):
                        return response
                # Some servers send no blank line after the response, and keep the stream open. Decode again only after
                # the data has doubled, because a server could send one brace at a time.
                if pending >= 2 * tried and chunk.rstrip().endswith(b"}"):
                    tried = pending
                    last = [each for each in messages_at_end(parser) if isinstance(each, Response)]
                    if (response := self._response_among(last, request_id)) is not None:
                        return response
            return self._response_among(messages_at_end(parser), request_id)
        except EventTooLargeError as error:
            seen.event_id = None  # a resumed stream would send the same event again
            raise BadAnswerError(f"sent {error}") from error
        except (aiohttp.ClientError, ConnectionError):
            # Without an event id, the stream cannot be resumed.
            if seen.event_id is None:
                raise
        return None

    def _response_among(
        self, messages: Sequence[Incoming | Response], request_id: int | None, *, alone: bool = False
    ) -> Response | None:
        found: Response | None = None
        for each in messages:
            if not isinstance(each, Response):
                self._inbox(each, request_id)
                if isinstance(each, Unreadable) and not alone and each.answers == request_id is not None:
                    raise BadAnswerError(f"sent an invalid message: {each.reason}")
            # JSON-RPC 2.0 §5: the id is null if the server could not read it.
            elif each.id == request_id or (alone and each.id is None and each.error is not None):
                found = each
        return found

    async def _resumed(self, request_id: int, seen: "_StreamPosition", fields: Mapping[str, str]) -> Response:
        """Resume a stream that ended before the response (2025-11-25, "Resumability")."""
        reason, in_vain = "ended the stream without a response", 0
        while seen.event_id is not None and in_vain < _MAX_RESUMPTIONS:
            await asyncio.sleep(_FIRST_PAUSE if seen.retry is None else seen.retry)
            before = seen.event_id
            try:
                async with self._stream(seen, fields) as answer:
                    if answer is None:
                        break
                    response = await self._response_in(answer, request_id, seen)
            # Raise BadAnswerError below, because the request was started and must not be sent again.
            except UpstreamError as error:
                reason = str(error)
                if isinstance(error, SessionLostError | NotMcpError | RefusedCredentialsError | NoCredentialsError):
                    break
            else:
                if response is not None:
                    return response
            in_vain = in_vain + 1 if seen.event_id == before else 0
        raise BadAnswerError(reason)

    @asynccontextmanager
    async def _stream(self, seen: "_StreamPosition", fields: Mapping[str, str]) -> AsyncIterator[Answer | None]:
        resuming = {} if seen.event_id is None else {"Last-Event-ID": seen.event_id}
        # A GET has no body to mirror.
        kept = {name: value for name, value in fields.items() if not name.lower().startswith(_OF_A_REQUEST)}
        headers = {"Accept": _EVENT_STREAM, **self._of_session(), **kept, **resuming}
        async with self._channel.exchange("GET", fields=headers) as answer:
            if answer.status == 200 and answer.media_type == _EVENT_STREAM:
                yield answer
            # MCP 2025-06-18 basic/transports, "Listening for Messages from the Server": 405 means no stream.
            elif answer.status in {405, 501}:
                yield None
            else:
                raise refusal(answer, await read_body(answer), has_session=self.session_id is not None)

    def _lost(self, reason: str) -> None:
        if not self.closed.done():
            self.closed.set_result(reason)


def _is_session_lost(response: Response) -> bool:
    error = response.error
    if not isinstance(error, dict) or error.get("code") != _SESSION_NOT_FOUND:
        return False
    message = error.get("message")
    return isinstance(message, str) and _LOST_SESSION.search(message) is not None


class _StreamPosition:
    def __init__(self) -> None:
        self.event_id: str | None = None
        self.events = 0
        self.retry: float | None = None
        """Seconds between two connections, as requested by the server."""

    def note(self, event: Event) -> None:
        self.events += bool(event.data) or event.retry_ms is not None
        if event.id:
            self.event_id = event.id
        if event.retry_ms is not None:
            # MCP 2025-11-25 basic/transports: clients must respect `retry`. A maximum applies, because a caller waits.
            self.retry = min(event.retry_ms / 1000, _MAX_PAUSE)
