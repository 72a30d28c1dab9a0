"""Sends HTTP requests to one MCP server.

Threats: forbidden addresses (`AddressGuard`), credentials that follow a redirect to another origin (only redirects
within the origin are followed), and endless responses (readers limit the size).
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Final, TypeVar

import aiohttp
from msgspec.structs import replace
from yarl import URL

from gateway.access.identity import Subject
from gateway.errors import ExecutionError
from gateway.net.address_guard import AddressRefusedError
from gateway.net.authorization import Authorization
from gateway.net.clients import Answer, BodyTooLargeError
from gateway.net.request import REJECTIONS, Rejection, Request, bound, origin_of, parse_url
from gateway.net.sender import Sender, TooManyRedirectsError, explained
from gateway.upstreams.client.link import Outgoing
from gateway.upstreams.failures import (
    BadAnswerError,
    ConnectionLostError,
    NoCredentialsError,
    NotMcpError,
    RefusedCredentialsError,
    RequestRefusedError,
    SessionLostError,
    UnreachableError,
)

T = TypeVar("T")

MAX_BODY: Final = 32 * 2**20
_MAX_REDIRECTS: Final = 3
_SIGN_IN_SECONDS: Final = 30.0
_UNAUTHORIZED: Final = 401
_SEE_OTHER: Final = 303
"""The status of a redirect to a GET request, which would lose the message (RFC 9110 §15.4.4)."""
_EXCERPT: Final = 300
# RFC 9110 §15.5.14, §15.5.15, §15.5.21, RFC 6585 §4, §5: errors that concern one request.
_OF_THE_REQUEST: Final = frozenset({413, 414, 422, 429, 431})
_LOSS: Final = (
    r"\b(?:not found|unknown|expired|invalid|no longer|terminated|not exist|n.t exist|ended|closed|no such)\b"
)
_SESSION: Final = r"\bsession(?:[ _-]?id)?\b(?![ _-]?(?:token|cookie))"
LOST_SESSION: Final = re.compile(rf"{_SESSION}.{{0,80}}{_LOSS}|{_LOSS}.{{0,20}}{_SESSION}", re.IGNORECASE | re.DOTALL)
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
        outgoing: Outgoing | None = None,
    ) -> AsyncIterator[Answer]:
        """Send a request, authenticated for the caller of the MCP request `outgoing`, and yield the response.

        Raises:
            NoCredentialsError: the caller has no credentials.
            UnreachableError: nothing was sent.
            ConnectionLostError: the response is missing or incomplete.
        """
        subject = outgoing.subject if outgoing is not None else None
        if outgoing is None or outgoing.is_own:
            subject = None if self.subject is None else replace(self.subject, is_calling=False)
        url = url or self.url
        request = Request(method=method, url=url, headers=bound({**self._headers, **fields}), body=body)
        host = url.raw_host or ""
        authorization = self._authorization
        try:
            for attempt in count(1):
                signed = request
                if authorization is not None:
                    signed = await _authenticated(authorization.sign(request, subject, deadline=_deadline()))
                async with self._sender.exchange(signed) as answer:
                    # RFC 6750 §3.1: a token can be revoked before it expires (`invalid_token`).
                    rejected = Rejection(signed, answer.status, answer.headers, attempt)
                    if (
                        authorization is None
                        or answer.status not in REJECTIONS
                        or not await _authenticated(authorization.renew(rejected, subject, deadline=_deadline()))
                    ):
                        self.subject = subject or self.subject  # a session outlives the tokens of its caller
                        yield answer
                        return
        except TooManyRedirectsError as error:
            raise NotMcpError(f"{host} redirects too often") from error
        except ExecutionError as error:
            if isinstance(error.__cause__, aiohttp.ClientConnectorError | AddressRefusedError | aiohttp.InvalidURL):
                raise UnreachableError(_reason(error)) from error
            if isinstance(error.__cause__, aiohttp.ClientError):
                raise ConnectionLostError(_reason(error)) from error
            raise
        except (TimeoutError, ConnectionError) as error:
            raise ConnectionLostError(_reason(explained(error, host=host))) from error

    def _redirected(self, request: Request, status: int, location: str) -> Request | None:
        """Return the next request of a redirect within the origin. Raise NotMcpError for redirects to other origins."""
        if status == _SEE_OTHER:
            return None
        url = request.url
        try:
            target = url.join(parse_url(location))
        except ValueError as error:
            raise NotMcpError(f"{url.raw_host} redirects to an invalid URL") from error
        # The request contains credentials for this server.
        if origin_of(target) != origin_of(url):
            raise NotMcpError(f"{url.raw_host} redirects to another origin, {target.origin()}. Use that as `url`.")
        # Later requests go to the new URL.
        if url == self.url:
            self.url = target
        return replace(request, url=target)


def _deadline() -> float:
    return asyncio.get_running_loop().time() + _SIGN_IN_SECONDS


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
    """Return the exception for an HTTP error response."""
    text = body[:_EXCERPT].decode(errors="replace").strip()
    said = f"responds with {answer.status} {answer.reason}".rstrip()
    full = f"{said}: {text}" if text else said
    # 2025-06-18 basic/transports, "Session Management": the status is 404, but some servers use other statuses.
    if has_session and (answer.status in {404, 410} or reports_lost_session(answer, text)):
        return SessionLostError(f"the session has ended ({full})")
    if answer.status in {401, 403}:
        return RefusedCredentialsError(
            full if text and answer.status != 401 else f"{said}: it requires other credentials"
        )
    if answer.status >= 500:
        return BadAnswerError(full)
    kind = RequestRefusedError if answer.status in _OF_THE_REQUEST else NotMcpError
    return kind(full)


def reports_lost_session(answer: Answer, text: str) -> bool:
    """Return whether an HTTP error means that the server does not know the session."""
    if answer.status == _UNAUTHORIZED:
        # RFC 6750 §3.1: an error code in the challenge concerns the access token.
        return LOST_SESSION.search(text) is not None and "error=" not in answer.headers.get("WWW-Authenticate", "")
    # The TypeScript SDK sends "Server not initialized".
    pattern = re.compile("session|not initialized", re.IGNORECASE)
    return answer.status in {400, 404, 410, 422, 503} and pattern.search(text) is not None


def _reason(error: ExecutionError) -> str:
    system = getattr(error.__cause__, "os_error", None)
    if isinstance(error.__cause__, aiohttp.ClientConnectorError) and isinstance(system, ConnectionRefusedError):
        return "connection refused"
    said = str(error)
    return said[:1].lower() + said[1:] if said.startswith(("Cannot", "The ", "No ")) else said
