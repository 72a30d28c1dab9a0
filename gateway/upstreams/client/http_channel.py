"""Sends HTTP requests to one MCP server: through its pool of connections, with its header fields and credentials.

Threats answered here: an address that must not be reached (`AddressGuard`), credentials that follow a redirect to
another origin (only redirects within the origin are followed), and answers without end (bounded by the readers).
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import aiohttp
import msgspec
from yarl import URL

from gateway.access.identity.credentials import Credential
from gateway.errors import ExecutionError
from gateway.executors.http.address_guard import AddressPolicy, AddressRefusedError
from gateway.executors.http.authorization import Authorization
from gateway.executors.http.clients import ClientProfile, HttpClients
from gateway.executors.http.sender import explained, origin_of
from gateway.executors.http.tls import ClientTrust
from gateway.upstreams.failures import (
    ConnectionLostError,
    NoCredentialsError,
    NotMcpError,
    RefusedCredentialsError,
    SessionLostError,
    UnreachableError,
)

MAX_BODY: Final = 32 * 2**20
_MAX_REDIRECTS: Final = 3
_SIGN_IN_SECONDS: Final = 30.0
_UNAUTHORIZED: Final = 401
_REDIRECTS: Final = frozenset({301, 302, 307, 308})
_EXCERPT: Final = 300


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
    """Sends single requests."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint: Final = endpoint
        self.url = endpoint.url

    @asynccontextmanager
    async def exchange(
        self,
        method: str,
        *,
        fields: Mapping[str, str],
        body: bytes | None = None,
        url: URL | None = None,
        token: Credential | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request, and give its answer for as long as the context lasts.

        `token` is the caller's, for ways to sign in that exchange it; with new credentials it is sent once more.

        Raises:
            NoCredentialsError: the caller has none to sign in with.
            UnreachableError: nothing was sent.
            ConnectionLostError: the answer did not come, or ended early.
        """
        try:
            async with AsyncExitStack() as stack:
                answer = await self._signed(method, fields, body, url or self.url, token, stack)
                yield answer
        except (aiohttp.ClientConnectorError, AddressRefusedError, aiohttp.InvalidURL) as error:
            raise UnreachableError(_reason(error, self.url.raw_host or "")) from error
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise ConnectionLostError(_reason(error, self.url.raw_host or "")) from error

    async def _signed(  # noqa: PLR0913, PLR0917 - the parts of a request
        self,
        method: str,
        fields: Mapping[str, str],
        body: bytes | None,
        url: URL,
        token: Credential | None,
        stack: AsyncExitStack,
    ) -> aiohttp.ClientResponse:
        authorization = self._endpoint.authorization
        if authorization is None:
            return await self._followed(method, {**self._endpoint.headers, **fields}, body, url, stack)
        own = token if authorization.is_per_caller else None
        for is_last in (False, True):
            header = await self._credentials(authorization, own)
            headers = {**self._endpoint.headers, **fields, "Authorization": header}
            attempt = AsyncExitStack()
            answer = await self._followed(method, headers, body, url, attempt)
            if answer.status != _UNAUTHORIZED or is_last or not authorization.reject(header, own):
                break
            await attempt.aclose()
        stack.push_async_exit(attempt)
        return answer

    @staticmethod
    async def _credentials(authorization: Authorization, token: Credential | None) -> str:
        deadline = asyncio.get_running_loop().time() + _SIGN_IN_SECONDS
        try:
            return await authorization.header(token, deadline=deadline)
        except ExecutionError as error:
            raise NoCredentialsError(str(error)) from error

    async def _followed(
        self, method: str, headers: Mapping[str, str], body: bytes | None, url: URL, stack: AsyncExitStack
    ) -> aiohttp.ClientResponse:
        for _ in range(_MAX_REDIRECTS + 1):
            hop = AsyncExitStack()
            answer = await hop.enter_async_context(self._sent(method, url, headers, body))
            location = answer.headers.get("Location")
            if answer.status not in _REDIRECTS or location is None:
                stack.push_async_exit(hop)
                return answer
            await hop.aclose()
            url = self._redirected(url, location)
        raise NotMcpError(f"{url.raw_host} redirects without end")

    @asynccontextmanager
    async def _sent(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        endpoint = self._endpoint
        guard = endpoint.policy.guard_for(url.raw_host or "")
        profile = ClientProfile(guard=guard, proxy=endpoint.proxy, trust=endpoint.trust)
        async with (
            endpoint.clients.pool(profile) as session,
            session.request(method, url, headers=headers, data=body, allow_redirects=False) as answer,
        ):
            yield answer

    def _redirected(self, url: URL, location: str) -> URL:
        target = url.join(URL(location))
        if origin_of(target) != origin_of(url):
            raise NotMcpError(f"{url.raw_host} redirects to another origin, {target.origin()}: write that as `url`")
        if url == self.url:
            self.url = target
        return target


async def read_body(answer: aiohttp.ClientResponse) -> bytes:
    """Read a body of at most `MAX_BODY` bytes.

    Raises:
        ConnectionLostError: it is longer.
    """
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > MAX_BODY:
            raise ConnectionLostError(f"answers with more than {MAX_BODY // 2**20} MiB")
    return bytes(body)


async def refusal(answer: aiohttp.ClientResponse, *, has_session: bool) -> Exception:
    """The failure that an HTTP status means, where the body is no JSON-RPC message."""
    text = (await read_body(answer))[:_EXCERPT].decode(errors="replace").strip()
    said = f"answers {answer.status} {answer.reason or ''}".rstrip()
    if answer.status in {401, 403}:
        return RefusedCredentialsError(f"{said}: it wants other credentials")
    if has_session and speaks_of_a_lost_session(answer.status, text):
        return SessionLostError("the session has ended")
    if answer.status >= 500:
        return ConnectionLostError(f"{said}: {text}" if text else said)
    return NotMcpError(f"{said}: {text}" if text else said)


def speaks_of_a_lost_session(status: int, text: str) -> bool:
    """Whether an answer says that a session is unknown: 404, or 400 and 503 that speak of one."""
    return status == 404 or (status in {400, 503} and "session" in text.lower())


def _reason(error: Exception, host: str) -> str:
    system = getattr(error, "os_error", None)
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(system, ConnectionRefusedError):
        return "connection refused"
    said = str(explained(error, host=host))
    return said[:1].lower() + said[1:] if said.startswith(("Cannot", "The ", "No ")) else said
