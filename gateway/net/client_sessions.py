"""Client sessions of aiohttp, each with a connector of ours.

Lean on purpose: no cookie jar (two callers must not share cookies), no total timer (calls have deadlines), no proxy and
no credentials from the environment.

What a server sends is bounded by aiohttp (lines, headers, chunks) or by the sender (body, time).
"""

import asyncio
import socket
from typing import Final

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError

from gateway.net.address_guard import AddressGuard
from gateway.net.connection_pool import USER_AGENT, Pool
from gateway.net.request_facts import steps_of_requests
from gateway.net.tls import ClientTrust
from gateway.threads import DaemonThreadPool


class ClientProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a connection: requests share a pool only if all of them are equal."""

    guard: AddressGuard
    proxy: str | None = None
    """Its sockets all lead to the proxy, so that the guard has to let them."""
    trust: ClientTrust | None = None


def open_pool(profile: ClientProfile, lookups: DaemonThreadPool) -> Pool:
    """Open the pool of a profile, without connections; names are looked up in the threads `lookups`."""
    return Pool(_open(profile, lookups))


def open_shared_session(lookups: DaemonThreadPool) -> aiohttp.ClientSession:
    """Open the session for plugins: private addresses are refused, and each request is a step of its call's trace."""
    return _open(ClientProfile(guard=AddressGuard()), lookups, steps_of_requests())


def _open(
    profile: ClientProfile, lookups: DaemonThreadPool, *observed_by: aiohttp.TraceConfig
) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(
        # Calls are limited by `concurrency`; in a second queue here they would wait unseen.
        limit=0,
        resolver=DaemonResolver(lookups),
        socket_factory=profile.guard.open_socket,
        ssl=True if profile.trust is None else profile.trust.context,
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": USER_AGENT},
        proxy=profile.proxy,
        timeout=aiohttp.ClientTimeout(total=None),
        trace_configs=list(observed_by),
        response_class=_BoundedResponse,
    )


MAX_INTERIM: Final = 20
"""Interim responses (1xx) before an answer. RFC 8297 expects a few; aiohttp would read them without end."""


class _BoundedResponse(aiohttp.ClientResponse):
    """An answer that fails after too many interim responses."""

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        protocol = connection.protocol
        if protocol is None:
            raise aiohttp.ServerDisconnectedError
        for _ in range(MAX_INTERIM + 1):
            try:
                head, body = await protocol.read()
            except HttpProcessingError as error:
                raise aiohttp.ClientResponseError(self.request_info, (), message=error.message) from error
            # RFC 9110 §15.2.2: after 101 the connection speaks another protocol: no other answer follows.
            if head.code >= 200 or head.code == 101:
                protocol.feed_data((head, body))  # read again by aiohttp
                return await super().start(connection)
        connection.close()
        raise aiohttp.ClientResponseError(self.request_info, (), message="too many interim responses")


_LOOKUP_TIMEOUT: Final = 60.0
"""Seconds. The calls that wait for it have deadlines of their own."""


class DaemonResolver(AbstractResolver):
    """Asks the system's resolver in our own daemon threads.

    Why not aiohttp's resolver: it asks in the loop's executor, or in libuv's threads, and both are joined at exit. One
    name server that does not answer would keep the process for half a minute.
    """

    def __init__(self, threads: DaemonThreadPool) -> None:
        self._threads = threads

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        deadline = asyncio.get_running_loop().time() + _LOOKUP_TIMEOUT
        return await self._threads.run(_look_up, host, port, family, deadline=deadline)

    async def close(self) -> None:
        """Do nothing: the threads belong to the caller of the constructor."""


def _look_up(host: str, port: int, family: int) -> list[ResolveResult]:
    try:
        # Without a socket type, each address would come once for each type.
        infos = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a label that is empty or over 63 characters
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from error
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return [
        ResolveResult(hostname=host, host=str(address[0]), port=port, family=found, proto=protocol, flags=flags)
        for found, _, protocol, _, address in infos
    ]
