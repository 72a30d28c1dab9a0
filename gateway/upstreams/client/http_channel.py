"""Sends HTTP requests to one MCP server: through its pool of connections, with its header fields and credentials.

Threats answered here: an address that must not be reached (`AddressGuard`), credentials that follow a redirect to
another origin (only redirects within the origin are followed), and answers without end (bounded by the readers).
"""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final

import aiohttp
import msgspec
from yarl import URL

from gateway.access.credentials import Credential
from gateway.errors import ExecutionError
from gateway.net.address_guard import AddressPolicy, AddressRefusedError
from gateway.net.authorization import Authorization
from gateway.net.client_sessions import ClientProfile
from gateway.net.clients import HttpClients
from gateway.net.connection_pool import Answer, BodyTooLargeError
from gateway.net.sender import explained
from gateway.net.tls import ClientTrust
from gateway.net.url import origin_of, parse_url
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

MAX_BODY: Final = 32 * 2**20
_MAX_REDIRECTS: Final = 3
_SIGN_IN_SECONDS: Final = 30.0
_UNAUTHORIZED: Final = 401
# Not 303, which asks for a GET (RFC 9110 §15.4.4): a message would be lost.
_REDIRECTS: Final = frozenset({301, 302, 307, 308})
_EXCERPT: Final = 300
# RFC 9110 §15.5.14, §15.5.15, §15.5.21, RFC 6585 §4, §5: about the content, its size, or how many requests there are.
_OF_THE_REQUEST: Final = frozenset({413, 414, 422, 429, 431})


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A server over HTTP, and how to reach it."""

    url: URL
    headers: Mapping[str, str]
    clients: HttpClients
    policy: AddressPolicy
    proxy: str | None = None
    trust: ClientTrust | None = None
    authorization: Authorization | None = None


class HttpChannel:
    """Sends single requests: of callers, with their access tokens, and of the gateway itself."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint: Final = endpoint
        self.url = endpoint.url
        self.token: Credential | None = None
        """The newest access token of a caller, for requests of the gateway itself; never for those of other callers."""
        self.is_anonymous = False
        """Whether it is no caller's: its own requests go without credentials where only callers have any."""
        guard = endpoint.policy.guard_for(endpoint.url.raw_host or "")
        self._profile: Final = ClientProfile(guard=guard, proxy=endpoint.proxy, trust=endpoint.trust)

    def exchange(
        self,
        method: str,
        *,
        fields: Mapping[str, str],
        body: bytes | None = None,
        url: URL | None = None,
        outgoing: Outgoing | None = None,
    ) -> "ChannelExchange":
        """Return the exchange of a request for its answer; see `ChannelExchange`.

        `outgoing`: the request, where it may be a caller's; its token is for ways to sign in that exchange it.
        """
        exchange = ChannelExchange(self, method, {**self.endpoint.headers, **fields}, body, url or self.url)
        if outgoing is not None:
            self.token = outgoing.token or self.token  # a session outlives the tokens of its caller
        if outgoing is None or outgoing.is_own:
            exchange.token, exchange.is_anonymous = self.token, self.is_anonymous
        else:
            exchange.token = outgoing.token
        return exchange

    def begin(
        self, method: str, url: URL, *, fields: Mapping[str, str], body: bytes | None
    ) -> AbstractAsyncContextManager[Answer]:
        """Begin an exchange with one place: this channel's, or within its origin."""
        return self.endpoint.clients.pool(self._profile).exchange(method, url, headers=fields.items(), body=body)

    def redirected(self, url: URL, location: str) -> URL:
        """The place where a redirect leads; what leads there once does so from now on.

        Raises:
            NotMcpError: it is no URL, or at another origin.
        """
        try:
            target = url.join(parse_url(location))
        except ValueError as error:
            raise NotMcpError(f"{url.raw_host} redirects to what is no URL") from error
        # The credentials of this server would go along.
        if origin_of(target) != origin_of(url):
            raise NotMcpError(f"{url.raw_host} redirects to another origin, {target.origin()}: write that as `url`")
        # Only what the file names moves: an answer for another place says nothing of it.
        if url == self.url:
            self.url = target
        return target


class ChannelExchange:
    """One request and its answer, as a context: signed in, and redirects followed. What fails in it is explained.

    Raises:
        NoCredentialsError: the caller has none to sign in with.
        UnreachableError: nothing was sent.
        ConnectionLostError: the answer did not come, or ended early.
    """

    __slots__ = ("_body", "_channel", "_fields", "_hop", "_method", "_url", "is_anonymous", "token")

    def __init__(
        self, channel: HttpChannel, method: str, fields: Mapping[str, str], body: bytes | None, url: URL
    ) -> None:
        self._channel = channel
        self._method = method
        self._fields = fields
        self._body = body
        self._url = url
        self.token: Credential | None = None
        """The caller's, for ways to sign in that exchange it."""
        self.is_anonymous = False
        """Whether it goes out without credentials where only callers have any, and there is no token."""
        self._hop: AbstractAsyncContextManager[Answer] | None = None

    async def __aenter__(self) -> Answer:
        authorization = self._channel.endpoint.authorization
        try:
            if authorization is None:
                return await self._followed(self._fields)
            return await self._signed(authorization)
        # `__aexit__` is not called where `__aenter__` raises: the connection must go back here.
        except BaseException as error:
            await self._leave()
            self._explain(error)
            raise

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        await self._leave()
        if error is not None:
            self._explain(error)

    async def _signed(self, authorization: Authorization) -> Answer:
        own = self.token if authorization.is_per_caller else None
        if own is None and authorization.is_per_caller and self.is_anonymous:
            return await self._followed(self._fields)
        header = await self._credentials(authorization, own)
        answer = await self._followed({**self._fields, "Authorization": header})
        # A token may have been revoked before its time (RFC 6750 §3.1, `invalid_token`): one more try, with a new one.
        if answer.status == _UNAUTHORIZED and authorization.reject(header, own):
            await self._leave()
            header = await self._credentials(authorization, own)
            answer = await self._followed({**self._fields, "Authorization": header})
        return answer

    @staticmethod
    async def _credentials(authorization: Authorization, token: Credential | None) -> str:
        deadline = asyncio.get_running_loop().time() + _SIGN_IN_SECONDS
        try:
            return await authorization.header(token, deadline=deadline)
        except ExecutionError as error:
            raise NoCredentialsError(str(error)) from error

    async def _followed(self, fields: Mapping[str, str]) -> Answer:
        url = self._url
        for _ in range(_MAX_REDIRECTS + 1):
            hop = self._channel.begin(self._method, url, fields=fields, body=self._body)
            answer = await hop.__aenter__()
            self._hop = hop
            if answer.status not in _REDIRECTS or (location := answer.headers.get("Location")) is None:
                return answer
            await self._leave()
            url = self._channel.redirected(url, location)
        raise NotMcpError(f"{url.raw_host} redirects without end")

    async def _leave(self) -> None:
        hop, self._hop = self._hop, None
        if hop is not None:
            await hop.__aexit__(None, None, None)

    def _explain(self, error: BaseException) -> None:
        host = self._url.raw_host or ""
        if isinstance(error, aiohttp.ClientConnectorError | AddressRefusedError | aiohttp.InvalidURL):
            raise UnreachableError(_reason(error, host)) from error
        if isinstance(error, aiohttp.ClientError | TimeoutError | ConnectionError):
            raise ConnectionLostError(_reason(error, host)) from error


async def read_body(answer: Answer) -> bytes:
    """Read a body of at most `MAX_BODY` bytes.

    Raises:
        BadAnswerError: it is longer.
    """
    try:
        return await answer.read(max_bytes=MAX_BODY)
    except BodyTooLargeError:
        raise BadAnswerError(f"answers with more than {MAX_BODY // 2**20} MiB") from None


def refusal(answer: Answer, body: bytes, *, has_session: bool) -> Exception:
    """The failure that an HTTP status means, where the body is not the response to the request."""
    text = body[:_EXCERPT].decode(errors="replace").strip()
    said = f"answers {answer.status} {answer.reason}".rstrip()
    full = f"{said}: {text}" if text else said
    if answer.status in {401, 403}:
        return RefusedCredentialsError(full if text and answer.status != 401 else f"{said}: it wants other credentials")
    # 2025-06-18 basic/transports, "Session Management": 404 says that it has ended; some servers say it otherwise.
    if has_session and (answer.status == 404 or speaks_of_a_lost_session(answer.status, text)):
        return SessionLostError(f"the session has ended ({full})")
    if answer.status >= 500:
        return BadAnswerError(full)
    kind = RequestRefusedError if answer.status in _OF_THE_REQUEST else NotMcpError
    return kind(full)


def speaks_of_a_lost_session(status: int, text: str) -> bool:
    """Whether an error says that a session is unknown: 400, 404 and 503 that speak of one."""
    return status in {400, 404, 503} and "session" in text.lower()


def _reason(error: Exception, host: str) -> str:
    system = getattr(error, "os_error", None)
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(system, ConnectionRefusedError):
        return "connection refused"
    said = str(explained(error, host=host))
    return said[:1].lower() + said[1:] if said.startswith(("Cannot", "The ", "No ")) else said
