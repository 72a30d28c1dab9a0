"""Sends requests, follows redirects, and reads responses, without retries.

The time, the number of redirects and the decompressed size are limited. A cancelled call closes its connection.
"""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
import msgspec
from msgspec.structs import replace
from multidict import CIMultiDictProxy
from yarl import URL

from gateway.config.diagnostics.problems import Problems
from gateway.config.models.backends import Connection
from gateway.config.models.quantities import size_text
from gateway.deadline import DeadlineExceededError
from gateway.errors import ExecutionError
from gateway.json_types import Json
from gateway.language.uris.urls import base_url_problem
from gateway.net.address_guard import PUBLIC_ONLY, AddressGuard, AddressPolicy, AddressRefusedError, compile_policy
from gateway.net.clients import (
    NO_TIMEOUT,
    Answer,
    BodyTooLargeError,
    ClientProfile,
    HttpClients,
    Pool,
    UnknownEncodingError,
)
from gateway.net.request import Request, origin_of, parse_url
from gateway.net.tls import Trust, compile_tls

MAX_RESPONSE_BYTES: Final = 8 * 2**20


class Response(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    reason: str
    headers: CIMultiDictProxy[str]
    """Headers as received, which can contain surrogates (see `valid_text`)."""
    body: bytes
    is_redirected: bool = False
    """Whether a redirect led to another origin, as in `Answer.is_redirected`."""


REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,253}|[0-9A-Fa-f:.]+(%25\w+)?")
"""A host without characters that a proxy or server could decode differently, such as `%31` (RFC 3986 §3.2.2)."""


def redirected(request: Request, status: int, location: str) -> Request:
    """Return the request that follows a redirect, as browsers do.

    1. The target is http or https with a plain host. A redirect from https to http is refused.
    2. After 303, or after 301 or 302 for POST, the next request is a GET without a body (Fetch, "HTTP-redirect fetch").
    3. Another origin receives no bound headers. If the body contains a configured secret, the redirect is refused.

    Raises:
        ExecutionError: The redirect is refused.
    """
    target = resolved(request.url, location, verb="redirects")
    following = replace(request, url=target)
    if (status == 303 and request.method not in {"GET", "HEAD"}) or (status in {301, 302} and request.method == "POST"):
        headers = tuple(header for header in request.headers if not header.name.lower().startswith("content-"))
        following = replace(following, method="GET", headers=headers, body=None)
    if origin_of(target) == origin_of(request.url):
        return following
    if following.body is not None and request.has_secret_body:
        raise ExecutionError(f"{request.url.raw_host} redirects to another origin, but the body contains a secret")
    return replace(following, headers=tuple(header for header in following.headers if not header.is_bound))


def resolved(base: URL, location: str, *, verb: str) -> URL:
    """Resolve a URL from a response. Raise ExecutionError unless the URL is http or https with a plain host.

    An https URL must not lead to http. `verb` is part of the error text, for example "redirects".
    """
    try:
        target = base.join(parse_url(location)).with_fragment(None)
        if target.scheme not in {"http", "https"} or not _HOST.fullmatch(target.raw_host or ""):
            raise ExecutionError(f"{base.raw_host} {verb} to a URL that is not allowed")
        # RFC 9110 §4.2.4: servers must not choose the credentials of the next request.
        target = target.with_user(None)
    except ValueError as error:
        raise ExecutionError(f"{base.raw_host} {verb} to an invalid URL") from error
    if base.scheme == "https" and target.scheme == "http":
        raise ExecutionError(f"{base.raw_host} {verb} from https to http, which is not followed")
    return target


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    """Sends requests with the proxy, TLS settings and address guard of one service."""

    clients: HttpClients
    policy: AddressPolicy = PUBLIC_ONLY
    proxy: str | None = None
    trust: tuple[Trust, Trust] = (None, None)
    """The TLS contexts for the service itself, and for other origins."""
    max_redirects: int = 0
    redirect: Callable[[Request, int, str], Request | None] = redirected
    """Takes a request, a status and a location. Returns the next request, or None to stop following redirects."""
    max_bytes: int = MAX_RESPONSE_BYTES
    timeout: aiohttp.ClientTimeout = NO_TIMEOUT
    """Timeouts for steps such as connecting. These are for requests without a deadline."""

    def facts(self, host: str) -> dict[str, Json]:
        """Describe the settings for requests to a host, for `explain`."""
        guard = self.policy.guard_for(host)
        private = "allowed" if guard.allows_all else sorted(map(str, guard.allowed)) or "refused"
        return {
            "private_addresses": private,
            "redirects": self.max_redirects,
            "proxy": None if self.proxy is None else str(URL(self.proxy).origin()),
        }

    async def send(self, request: Request, *, deadline: float) -> Response:
        """Send a request, follow redirects, and return the final response.

        Raises:
            ConnectionFailedError: The request failed.
            DeadlineExceededError: The response was not complete by `deadline` (the event loop's clock).
            ExecutionError: The response is too large, or an address or redirect is refused.
        """
        began = asyncio.get_running_loop().time()
        try:
            # The deadline includes all redirects and the body, so it also stops a server that sends a byte per second.
            async with asyncio.timeout_at(deadline), self.exchange(request) as answer:
                body = await answer.read(max_bytes=self.max_bytes)
        except TimeoutError as error:
            raise DeadlineExceededError(f"The request to {request.url.raw_host}", deadline - began) from error
        return Response(
            status=answer.status,
            reason=valid_text(answer.reason),
            headers=answer.headers,
            body=body,
            is_redirected=answer.is_redirected,
        )

    @asynccontextmanager
    async def exchange(self, request: Request) -> AsyncIterator[Answer]:
        """Send a request, follow redirects, and yield the final response before its body is read.

        Raises:
            ConnectionFailedError: The request failed, or the response ended early.
            ExecutionError: An address or redirect is refused.
        """
        home, is_redirected = request.home or origin_of(request.url), False
        for _ in range(self.max_redirects + 1):
            host = request.url.raw_host or ""
            try:
                # After a redirect back, the first origin gets the client certificate again, but no dropped headers.
                pool = await self._pool(host, is_home=origin_of(request.url) == home)
                async with pool, pool.request(request) as received:
                    answer = Answer(
                        received.status, received.reason or "", received.headers, received.content, is_redirected
                    )
                    following = self._following(request, answer)
                    if following is None:
                        yield answer
                        return
            except (aiohttp.ClientError, AddressRefusedError, BodyTooLargeError) as error:
                raise explained(error, host=host) from error
            request = following
            is_redirected = is_redirected or origin_of(request.url) != home
        raise TooManyRedirectsError(f"{home[1]} redirects more than {self.max_redirects} times (follow_redirects)")

    def _following(self, request: Request, answer: Answer) -> Request | None:
        location = answer.headers.get("Location")
        # If redirects are not followed, a redirect is the final response. `success` can contain its status.
        if answer.status not in REDIRECTS or not self.max_redirects or not location:
            return None
        return self.redirect(request, answer.status, location)

    async def _pool(self, host: str, *, is_home: bool) -> Pool:
        guard, trust = self.policy.guard_for(host), self.trust[0 if is_home else 1]
        if self.proxy is not None:
            # The proxy connects to the host, so check the host here.
            guard.check_spelled(host)
            if not is_home and not guard.allows_all:
                await self._check_resolved(host, guard)
            guard = _TO_THE_PROXY
        return self.clients.pool(ClientProfile(guard=guard, proxy=self.proxy, trust=trust, timeout=self.timeout))

    async def _check_resolved(self, host: str, guard: AddressGuard) -> None:
        # Not a complete check: the proxy resolves the host again, and can get a different address.
        try:
            addresses = await self.clients.addresses_of(host)
        except OSError as error:
            raise ExecutionError(
                f"A redirect leads to `{host}`, which cannot be resolved here, so its address "
                f"could be private. The operator can allow it: {permission_for(host)}"
            ) from error
        for address in addresses:
            guard.check_spelled(address)


_TO_THE_PROXY: Final = AddressGuard(allows_all=True)
"""Allows all addresses, because the operator names the proxy, and the proxy can be in a private network."""


def valid_text(text: str) -> str:
    """Replace bytes that are not UTF-8, which aiohttp keeps as surrogates."""
    return text if text.isascii() else text.encode(errors="surrogateescape").decode(errors="replace")


def compile_sender(connection: Connection, problems: Problems, *, clients: HttpClients) -> Sender:
    if problem := base_url_problem(connection.base_url):
        problems.at("base_url").error(problem)
    if connection.proxy is not None:
        _check_proxy(connection.proxy, problems.at("proxy"))
    return Sender(
        clients=clients,
        policy=compile_policy(connection.allow_private, problems.at("allow_private")),
        proxy=connection.proxy,
        trust=compile_tls(connection.tls, problems.at("tls")),
    )


def _check_proxy(proxy: str, problems: Problems) -> None:
    # Errors must not quote the URL, which can contain a password.
    try:
        url = URL(proxy)
        is_usable = url.scheme in {"http", "https"} and bool(url.raw_host)
    except ValueError:
        is_usable = False
    if not is_usable:
        problems.error("expected the URL of a proxy, such as http://proxy.example.com:3128")


class TooManyRedirectsError(ExecutionError):
    """The maximum number of redirects is exceeded."""


class ConnectionFailedError(ExecutionError):
    """The request failed, but a retry can succeed."""


def explained(error: Exception, *, host: str) -> ExecutionError:
    """Convert an exception of aiohttp to an error for the model, without URLs, headers or tracebacks."""
    # aiohttp wraps an AddressRefusedError of a socket. `_pool` raises the error directly for a proxy.
    refused = error if isinstance(error, AddressRefusedError) else getattr(error, "os_error", None)
    if isinstance(refused, AddressRefusedError):
        return ExecutionError(
            f"`{host}` has {refused.kind}, which is blocked. The operator can allow it: "
            f"{permission_for(host)}, or `true` for every address, in the tool's `http`, its connection or its upstream"
        )
    # aiohttp cannot decode `br` and `zstd` without their libraries. Messages of proxy errors are reason phrases.
    is_message = isinstance(error, aiohttp.ClientResponseError) and not isinstance(error, aiohttp.ClientHttpProxyError)
    if is_message and "content-encoding" in getattr(error, "message", ""):
        return ExecutionError(f"The response of {host} has a content encoding that is not supported")
    template = next(text for kind, text in _REASONS if isinstance(error, kind))
    text = template.format(host=host, error=error, detail=_detail(error))
    return ExecutionError(text) if isinstance(error, _FINAL) else ConnectionFailedError(text)


def permission_for(host: str) -> str:
    """Return the setting that allows requests to a host, as YAML for error messages. A host with a colon is quoted."""
    return f"`allow_private: [{json.dumps(host) if ':' in host else host}]`"


def warn_if_blocked(url: str, policy: AddressPolicy, problems: Problems) -> None:
    """Warn if `policy` blocks the host of a URL. Only IP addresses and `localhost` are checked, without DNS lookups."""
    try:
        host = parse_url(url).raw_host or ""
    except ValueError:
        return
    try:
        policy.guard_for(host).check_spelled(host)
    except AddressRefusedError as refused:
        problems.warning(f"`{host}` is {refused.kind}, which is blocked. Allow it with {permission_for(host)}")


def _detail(error: Json) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return getattr(error.certificate_error, "verify_message", "") or "certificate verify failed"
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return str(getattr(error.os_error, "reason", None) or "handshake failed").replace("_", " ").lower()
    if isinstance(error, BodyTooLargeError):
        return size_text(error.max_bytes)
    # Error numbers of getaddrinfo are negative on Linux.
    number = getattr(getattr(error, "os_error", None), "errno", None) or 0
    return os.strerror(number).lower() if number > 0 else "no connection"


_REASONS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (aiohttp.ClientConnectorDNSError, "The host {host} cannot be found"),
    (aiohttp.ClientConnectorCertificateError, "The certificate of {host} is not trusted: {detail}"),
    (aiohttp.ClientConnectorSSLError, "TLS handshake with {host} failed: {detail}"),
    (aiohttp.ClientProxyConnectionError, "The proxy cannot be reached: {detail}"),
    (aiohttp.ClientHttpProxyError, "The proxy cannot connect to {host}: status {error.status}"),
    (aiohttp.ClientConnectorError, "Cannot connect to {host}:{error.port}: {detail}"),
    (aiohttp.ServerTimeoutError, "{host} did not respond in time"),
    (aiohttp.InvalidURL, "{host} is not a valid host name"),
    (BodyTooLargeError, "The response of {host} exceeds {detail}. Request less data"),
    (UnknownEncodingError, "The response of {host} has the content encoding `{error}`, which is not supported"),
    (aiohttp.ClientPayloadError, "The response of {host} is incomplete or encoded incorrectly"),
    (aiohttp.ClientConnectionError, "{host} closed the connection without a response"),
    (aiohttp.ClientResponseError, "The response of {host} is not valid HTTP"),
    (Exception, "The request to {host} failed ({error.__class__.__name__})"),
)
"""Messages by exception class. The first match applies, so subclasses must precede their base classes."""
_FINAL: Final = (
    aiohttp.ClientConnectorCertificateError,
    aiohttp.InvalidURL,
    BodyTooLargeError,
    UnknownEncodingError,
)
"""Errors after which a request is not retried, because the error would occur again."""
