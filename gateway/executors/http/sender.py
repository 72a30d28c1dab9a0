"""Sends one request over the pools, follows where it is redirected, and reads the answer. Does not try again.

Bounded in every direction: time, number of redirects, and the size of the answer after decompression. A call that is
cancelled closes its connection.
"""

import asyncio
import io
from dataclasses import dataclass
from typing import Final

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from gateway.config.problems import Problems
from gateway.errors import ExecutionError
from gateway.executors.http.address_guard import AddressGuard, AddressPolicy, AddressRefusedError
from gateway.executors.http.clients import ClientProfile, HttpClients
from gateway.executors.http.failures import ConnectionFailedError, explained, permission_for
from gateway.executors.http.redirects import REDIRECTS, origin_of, redirected
from gateway.executors.http.request import Request
from gateway.executors.http.tls import ClientIdentity
from gateway.json_types import Json

MAX_RESPONSE_BYTES: Final = 8 * 2**20

_LARGE_BODY: Final = 2**20
"""Bytes; aiohttp wants to read a larger body piece by piece."""
_OURS_TO_SAY: Final = ("Content-Type",)
"""What aiohttp would add of its own: a body brings its type, and what has no body has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    status: int
    reason: str
    headers: CIMultiDict[str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """A compiled way to a service: through which proxy, with which trust, to which addresses."""

    clients: HttpClients
    policy: AddressPolicy
    proxy: str | None
    identity: ClientIdentity
    max_redirects: int
    max_bytes: int = MAX_RESPONSE_BYTES

    def facts(self, host: str) -> dict[str, Json]:
        """What is known of the way to a host before anything is sent."""
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
            ConnectionFailedError: no answer came back, or not in time.
            ExecutionError: the answer is too large, or an address or a redirect is refused.
        """
        host = request.url.host or ""
        try:
            async with asyncio.timeout_at(deadline):
                return await self._follow(request)
        except TimeoutError as error:
            raise ConnectionFailedError(f"{host} did not answer in time") from error

    async def _follow(self, request: Request) -> Response:
        home, is_home = request.url, True
        for _ in range(self.max_redirects + 1):
            answer = await self._hop(request, is_home=is_home)
            if isinstance(answer, Response):
                return answer
            request, is_home = answer, origin_of(answer.url) == origin_of(home)
        raise ExecutionError(f"{home.host} redirects more than {self.max_redirects} times (follow_redirects)")

    async def _hop(self, request: Request, *, is_home: bool) -> "Response | Request":
        """Send to one origin; return its answer, or the request that its redirect asks for."""
        host = request.url.host or ""
        try:
            profile = await self._profile(host, is_home=is_home)
            async with (
                self.clients.borrowed(profile) as session,
                session.request(
                    request.method,
                    request.url,
                    headers=[(header.name, header.value) for header in request.headers],
                    skip_auto_headers=_OURS_TO_SAY,
                    data=_readable(request.body),
                    allow_redirects=False,
                ) as answer,
            ):
                location = answer.headers.get("Location")
                if self.max_redirects and answer.status in REDIRECTS and location:
                    return redirected(request, status=answer.status, location=location)
                return await self._read(answer, host)
        except (aiohttp.ClientError, AddressRefusedError) as error:
            raise explained(error, host=host) from error

    async def _profile(self, host: str, *, is_home: bool) -> ClientProfile:
        trust = self.identity.here if is_home else self.identity.elsewhere
        guard = self.policy.guard_for(host)
        if self.proxy is None:
            return ClientProfile(guard=guard, trust=trust)
        guard.check_spelled(host)
        if not is_home and not guard.allows_all:
            await self._check_resolved(host, guard)
        return ClientProfile(guard=_TO_THE_PROXY, proxy=self.proxy, trust=trust)

    async def _check_resolved(self, host: str, guard: AddressGuard) -> None:
        """Look up the host of a redirect before a proxy does: the operator named the first one, and nobody this one.

        The proxy looks it up again, and may be told otherwise: what it connects to, it alone can judge.
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

    async def _read(self, answer: aiohttp.ClientResponse, host: str) -> Response:
        chunks: list[bytes] = []
        room = self.max_bytes
        async for chunk in answer.content.iter_any():
            room -= len(chunk)
            if room < 0:
                raise ExecutionError(f"The answer of {host} is over {self.max_bytes // 2**20} MiB; ask for less")
            chunks.append(chunk)
        return Response(
            status=answer.status,
            reason=_valid(answer.reason or ""),
            headers=CIMultiDict((name, _valid(value)) for name, value in answer.headers.items()),
            body=b"".join(chunks),
        )


_TO_THE_PROXY: Final = AddressGuard(allows_all=True)
"""The operator named the proxy, and it may well be in a private network."""


def _valid(text: str) -> str:
    """Return `text` with bytes that are not UTF-8, which aiohttp keeps as half surrogate pairs, replaced."""
    return text if text.isascii() else text.encode(errors="surrogateescape").decode(errors="replace")


def _readable(body: bytes | None) -> bytes | io.BytesIO | None:
    return io.BytesIO(body) if body is not None and len(body) > _LARGE_BODY else body


def check_proxy(proxy: str, problems: Problems) -> None:
    """Report what is wrong with a connection's `proxy`. What it says may hold a password, so it is not repeated."""
    try:
        url = URL(proxy)
        is_usable = url.scheme in {"http", "https"} and bool(url.host)
    except ValueError:
        is_usable = False
    if not is_usable:
        problems.error("expected the URL of a proxy, such as http://proxy.example.com:3128")
