"""Sends one request over the pools, follows where it is redirected, and reads the answer. Does not try again.

Bounded in every direction: time, number of redirects, and the size of the answer after decompression. A call that is
cancelled closes its connection.
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
from gateway.deadline import DeadlineExceededError
from gateway.errors import ExecutionError
from gateway.json_types import Json
from gateway.language.files.decoding import size_in_words
from gateway.language.uris.urls import base_url_problem
from gateway.net.address_guard import PUBLIC_ONLY, AddressGuard, AddressPolicy, AddressRefusedError, compile_policy
from gateway.net.answer import Answer, BodyTooLargeError, UnknownEncodingError
from gateway.net.clients import NO_TIMEOUT, ClientProfile, HttpClients, Pool
from gateway.net.request import Request, origin_of, parse_url
from gateway.net.tls import ClientIdentity, compile_tls

MAX_RESPONSE_BYTES: Final = 8 * 2**20


class Response(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    reason: str
    headers: CIMultiDictProxy[str]
    """As they came; see `valid_text`."""
    body: bytes


REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,253}|[0-9A-Fa-f:.]+(%25\w+)?")
"""A name, an address, and nothing that a proxy or a server could decode to another (RFC 3986 §3.2.2 allows `%31`)."""


def redirected(request: Request, status: int, location: str) -> Request:
    """Return the request that follows a redirect, as browsers have it.

    1. The target must be http or https at a plain host, and never http after https.
    2. 303 becomes GET, and so does a POST at 301 and 302; the body goes with the method (Fetch, "HTTP-redirect fetch").
    3. At another origin, headers that are bound to the first one are dropped, and a body that holds a secret of the
       file is not sent.

    Raises:
        ExecutionError: it must not be followed.
    """
    target = _target(request.url, location)
    following = replace(request, url=target)
    if _becomes_get(request.method, status):
        headers = tuple(header for header in request.headers if not header.name.lower().startswith("content-"))
        following = replace(following, method="GET", headers=headers, body=None)
    if origin_of(target) == origin_of(request.url):
        return following
    if following.body is not None and request.has_secret_body:
        raise ExecutionError(
            f"{request.url.raw_host} redirects to another origin; a body that holds a secret stays here"
        )
    return replace(following, headers=tuple(header for header in following.headers if not header.is_bound))


def _target(base: URL, location: str) -> URL:
    try:
        target = base.join(parse_url(location)).with_fragment(None)
        if target.scheme not in {"http", "https"} or not _HOST.fullmatch(target.raw_host or ""):
            raise ExecutionError(f"{base.raw_host} redirects to what is not a web address")
        # RFC 9110 §4.2.4: a server does not choose the credentials of the next request.
        target = target.with_user(None)
    except ValueError as error:
        raise ExecutionError(f"{base.raw_host} redirects to what is not a URL") from error
    if base.scheme == "https" and target.scheme == "http":
        raise ExecutionError(f"{base.raw_host} redirects from https to http, which is not followed")
    return target


def _becomes_get(method: str, status: int) -> bool:
    return (status == 303 and method not in {"GET", "HEAD"}) or (status in {301, 302} and method == "POST")


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    """Sends requests to a service: through its proxy, with its trust, to allowed addresses."""

    clients: HttpClients
    policy: AddressPolicy = PUBLIC_ONLY
    proxy: str | None = None
    identity: ClientIdentity = ClientIdentity()
    max_redirects: int = 0
    redirect: Callable[[Request, int, str], Request | None] = redirected
    """Returns the request that follows a status and a location; None if there is to be none."""
    max_bytes: int = MAX_RESPONSE_BYTES
    timeout: aiohttp.ClientTimeout = NO_TIMEOUT
    """Bounds single steps, such as connecting, of whoever has no deadline."""

    def facts(self, host: str) -> dict[str, Json]:
        """Describe the connection to a host, before anything is sent."""
        guard = self.policy.guard_for(host)
        private = "allowed" if guard.allows_all else sorted(map(str, guard.allowed)) or "refused"
        return {
            "private_addresses": private,
            "redirects": self.max_redirects,
            "proxy": None if self.proxy is None else str(URL(self.proxy).origin()),
        }

    async def send(self, request: Request, *, deadline: float) -> Response:
        """Send, and return the last answer.

        Raises:
            ConnectionFailedError: no answer came back.
            DeadlineExceededError: none came back by `deadline`, on the event loop's clock.
            ExecutionError: the answer is too large, or an address or a redirect is refused.
        """
        began = asyncio.get_running_loop().time()
        try:
            # Around all hops, and the reading of the body: a server that sends a byte a second ends here, too.
            async with asyncio.timeout_at(deadline), self.exchange(request) as answer:
                body = await answer.read(max_bytes=self.max_bytes)
        except TimeoutError as error:
            raise DeadlineExceededError(f"The request to {request.url.raw_host}", deadline - began) from error
        return Response(status=answer.status, reason=valid_text(answer.reason), headers=answer.headers, body=body)

    @asynccontextmanager
    async def exchange(self, request: Request) -> AsyncIterator[Answer]:
        """Send, and yield the last answer, whose body is still to be read.

        Raises:
            ConnectionFailedError: no answer came back, or it broke off while it was read.
            ExecutionError: an address or a redirect is refused.
        """
        home = origin_of(request.url)
        for _ in range(self.max_redirects + 1):
            host = request.url.raw_host or ""
            try:
                # Back at the first origin the client certificate is used again; dropped header fields stay dropped.
                pool = await self._pool(host, is_home=origin_of(request.url) == home)
                async with pool.exchange(request) as answer:
                    following = self._following(request, answer)
                    if following is None:
                        yield answer
                        return
            except (aiohttp.ClientError, AddressRefusedError, BodyTooLargeError) as error:
                raise explained(error, host=host) from error
            request = following
        raise TooManyRedirectsError(f"{home[1]} redirects more than {self.max_redirects} times (follow_redirects)")

    def _following(self, request: Request, answer: Answer) -> Request | None:
        """Return the request that a redirect asks for; None for an answer that is the last."""
        location = answer.headers.get("Location")
        # Where redirects are not followed, a redirect is an answer, whose status `success` may hold.
        if answer.status not in REDIRECTS or not self.max_redirects or not location:
            return None
        return self.redirect(request, answer.status, location)

    async def _pool(self, host: str, *, is_home: bool) -> Pool:
        guard, trust = self.policy.guard_for(host), self.identity.here if is_home else self.identity.elsewhere
        if self.proxy is not None:
            # The proxy connects to the host: it is judged here.
            guard.check_spelled(host)
            if not is_home and not guard.allows_all:
                await self._check_resolved(host, guard)
            guard = _TO_THE_PROXY
        return self.clients.pool(ClientProfile(guard=guard, proxy=self.proxy, trust=trust, timeout=self.timeout))

    async def _check_resolved(self, host: str, guard: AddressGuard) -> None:
        """Look up the host of a redirect before a proxy does: the operator named the first host, but not this one.

        The proxy looks it up again, and may get another answer: it alone knows the address that it connects to.
        """
        try:
            addresses = await self.clients.addresses_of(host)
        except OSError as error:
            raise ExecutionError(
                f"A redirect leads to `{host}`, which cannot be looked up here, so that nobody knows whether it is "
                f"private. The operator can allow it: {permission_for(host)}"
            ) from error
        for address in addresses:
            guard.check_spelled(address)


_TO_THE_PROXY: Final = AddressGuard(allows_all=True)
"""The operator named the proxy, and it may well be in a private network."""


def valid_text(text: str) -> str:
    """Return `text` with bytes that are not UTF-8, which aiohttp keeps as half surrogate pairs, replaced."""
    return text if text.isascii() else text.encode(errors="surrogateescape").decode(errors="replace")


def compile_sender(connection: Connection, problems: Problems, *, clients: HttpClients) -> Sender:
    """Compile the way to a connection's service; mistakes go to `problems`, which is at its place."""
    if problem := base_url_problem(connection.base_url):
        problems.at("base_url").error(problem)
    if connection.proxy is not None:
        _check_proxy(connection.proxy, problems.at("proxy"))
    return Sender(
        clients=clients,
        policy=compile_policy(connection.allow_private, problems.at("allow_private")),
        proxy=connection.proxy,
        identity=compile_tls(connection.tls, problems.at("tls")),
    )


def _check_proxy(proxy: str, problems: Problems) -> None:
    """Report what is wrong with a connection's `proxy`. What it says may hold a password, so it is not repeated."""
    try:
        url = URL(proxy)
        is_usable = url.scheme in {"http", "https"} and bool(url.raw_host)
    except ValueError:
        is_usable = False
    if not is_usable:
        problems.error("expected the URL of a proxy, such as http://proxy.example.com:3128")


class TooManyRedirectsError(ExecutionError):
    """Redirects were followed as often as allowed, and there was another one."""


class ConnectionFailedError(ExecutionError):
    """No answer came back; trying again may help."""


def explained(error: Exception, *, host: str) -> ExecutionError:
    """Turn what the client library raised into words for the model: never a URL, a header or a traceback."""
    # aiohttp wraps what opening a socket raises; the checks for a proxy raise it as it is.
    refused = error if isinstance(error, AddressRefusedError) else getattr(error, "os_error", None)
    if isinstance(refused, AddressRefusedError):
        return ExecutionError(
            f"`{host}` has {refused.kind}, to which no connection is made. The operator can allow it: "
            f"{permission_for(host)}, or `true` for every address, in the tool's `http`, its connection or its upstream"
        )
    for kind, explain in _EXPLANATIONS:
        if isinstance(error, kind):
            return explain(error, host)
    return ConnectionFailedError(f"The request to {host} failed ({type(error).__name__})")


def permission_for(host: str) -> str:
    """Return the line of configuration that allows a host; in YAML a colon needs quotes."""
    return f"`allow_private: [{json.dumps(host) if ':' in host else host}]`"


def _certificate(error: aiohttp.ClientConnectorCertificateError, host: str) -> ExecutionError:
    reason = getattr(error.certificate_error, "verify_message", "") or "certificate verify failed"
    return ExecutionError(f"The certificate of {host} is not trusted: {reason}")


def _tls(error: aiohttp.ClientConnectorSSLError, host: str) -> ExecutionError:
    reason = getattr(error.os_error, "reason", None) or "handshake failed"
    return ConnectionFailedError(f"No TLS connection with {host}: {str(reason).replace('_', ' ').lower()}")


def _proxy(error: aiohttp.ClientProxyConnectionError, _host: str) -> ExecutionError:
    return ConnectionFailedError(f"The proxy cannot be reached: {_system_text(error.os_error)}")


def _proxy_answer(error: aiohttp.ClientHttpProxyError, host: str) -> ExecutionError:
    return ConnectionFailedError(f"The proxy does not connect to {host}: it answered {error.status}")


def _connect(error: aiohttp.ClientConnectorError, host: str) -> ExecutionError:
    return ConnectionFailedError(f"Cannot connect to {host}:{error.port}: {_system_text(error.os_error)}")


def _url(_error: aiohttp.InvalidURL, host: str) -> ExecutionError:
    return ExecutionError(f"{host} is not a host that can be connected to")


def _too_large(error: BodyTooLargeError, host: str) -> ExecutionError:
    return ExecutionError(f"The answer of {host} is over {size_in_words(error.max_bytes)}; ask for less")


def _encoding(error: UnknownEncodingError, host: str) -> ExecutionError:
    return ExecutionError(f"The answer of {host} has the content encoding `{error}`, which cannot be decoded")


def _malformed(error: aiohttp.ClientResponseError, host: str) -> ExecutionError:
    if "content-encoding" in error.message:  # `br` and `zstd`, without the libraries that aiohttp decodes them with
        return ExecutionError(f"The response of {host} has a content encoding that cannot be decoded here")
    return ConnectionFailedError(f"The answer of {host} is not HTTP as it should be")


def _system_text(error: OSError) -> str:
    # Errors of getaddrinfo have numbers of their own, on Linux below zero.
    return os.strerror(error.errno).lower() if error.errno and error.errno > 0 else "no connection"


def _saying(text: str) -> Callable[[Exception, str], ExecutionError]:
    """Explains with one text, whatever else is known; `{}` stands for the host."""
    return lambda _error, host: ConnectionFailedError(text.format(host))


_EXPLANATIONS: Final[tuple[tuple[type[Exception], Callable[..., ExecutionError]], ...]] = (
    (aiohttp.ClientConnectorDNSError, _saying("The host {} cannot be found")),
    (aiohttp.ClientConnectorCertificateError, _certificate),
    (aiohttp.ClientConnectorSSLError, _tls),
    (aiohttp.ClientProxyConnectionError, _proxy),
    (aiohttp.ClientHttpProxyError, _proxy_answer),
    (aiohttp.ClientConnectorError, _connect),
    (aiohttp.ServerTimeoutError, _saying("{} did not answer in time")),
    (aiohttp.InvalidURL, _url),
    (BodyTooLargeError, _too_large),
    (UnknownEncodingError, _encoding),
    (aiohttp.ClientPayloadError, _saying("The answer of {} broke off, or is not encoded as it says")),
    (aiohttp.ClientConnectionError, _saying("{} closed the connection before it answered")),
    (aiohttp.ClientResponseError, _malformed),
)
"""The first that fits; more special ones stand before those that they derive from."""
