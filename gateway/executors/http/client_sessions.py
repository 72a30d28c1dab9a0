"""Client sessions of aiohttp, each with a connector of ours.

Lean on purpose: no cookie jar (two callers must not share cookies), no total timer (calls have deadlines), no proxy and
no credentials from the environment.

Threat answered here: a server may send any number of interim responses (1xx) before its answer, and aiohttp takes them
all: parsed in bulk, they hold the event loop for seconds, and a hundred megabytes. Everything else that is sent is
bounded by aiohttp (lines, headers, chunks) or by the sender (body, time).
"""

import asyncio
import socket
from functools import partial
from typing import Any, Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import HttpProcessingError, RawResponseMessage
from aiohttp.streams import StreamReader

from gateway.executors.http.address_guard import AddressGuard
from gateway.executors.http.clients import ClientProfile
from gateway.executors.http.connection_pool import USER_AGENT, Pool
from gateway.executors.http.request_facts import steps_of_requests
from gateway.executors.threads import DaemonThreadPool


def open_pool(profile: ClientProfile, lookups: DaemonThreadPool) -> Pool:
    """Open the pool of a profile, without connections; names are looked up in the threads `lookups`."""
    return Pool(_open(profile, lookups), proxy=profile.proxy)


def open_shared_session(lookups: DaemonThreadPool) -> aiohttp.ClientSession:
    """Open the session for plugins: private addresses are refused, and each request is a step of its call's trace."""
    return _open(ClientProfile(guard=AddressGuard()), lookups, steps_of_requests())


def _open(
    profile: ClientProfile, lookups: DaemonThreadPool, *observed_by: aiohttp.TraceConfig
) -> aiohttp.ClientSession:
    connector = BoundedConnector(
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
    )


MAX_INTERIM: Final = 20
"""Before one connection's next answer. RFC 8297 expects a few."""


class BoundedConnector(aiohttp.TCPConnector):
    """A `TCPConnector` that hangs up on a server with too many interim responses.

    Why aiohttp's private `_factory`: it is the one place that says what reads a connection. A test fails if it is
    ignored.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        handler: type[ResponseHandler] = _BoundedHandler
        # After `super().__init__`, which sets its own.
        self._factory = partial(handler, loop=self._loop)


class _BoundedHandler(ResponseHandler):
    _interim = 0

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        self._interim = self._interim + 1 if 100 <= data[0].code < 200 else 0
        if self._interim <= MAX_INTERIM:
            super().feed_data(data, size)
        elif self.transport is not None and not self.transport.is_closing():
            # First the reason: after `abort` alone it would be a server that hung up.
            self.set_exception(HttpProcessingError(message="too many interim responses"))
            self.transport.abort()


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
