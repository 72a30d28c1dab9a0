"""Connection pools for HTTP backends: one for each kind of connection that must not be mixed.

Lean on purpose: no cookie jar (two callers must not share cookies), no total timer (calls have deadlines), no proxy and
no credentials from the environment. How many requests may run at once is the business of `concurrency`.

Threat answered here: a server may send any number of interim responses (1xx) before its answer, and aiohttp takes them
all: parsed in bulk, they hold the event loop for seconds, and a hundred megabytes. Everything else that is sent is
bounded by aiohttp (lines, headers, chunks) or by the sender (body, time).
"""

import asyncio
import socket
from collections import OrderedDict
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import HttpProcessingError, RawResponseMessage
from aiohttp.streams import StreamReader

from gateway.background_tasks import BackgroundTasks
from gateway.executors.http.address_guard import AddressGuard
from gateway.executors.http.exchange import USER_AGENT, Pool
from gateway.executors.http.request_facts import steps_of_requests
from gateway.executors.http.tls import ClientTrust
from gateway.executors.threads import DaemonThreadPool

MAX_POOLS: Final = 64
"""Pools that are kept; beyond that the longest unused one is closed (reloads may leave some behind)."""

MAX_LOOKUPS: Final = 16
"""Host names that may be looked up at once. These threads are for lookups alone: a stuck plugin must not stop them."""


class ClientProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a connection: requests share a pool only if all of them are equal."""

    guard: AddressGuard
    proxy: str | None = None
    """Its sockets all lead to the proxy, so that the guard has to let them."""
    trust: ClientTrust | None = None


class HttpClients:
    """Owns the pools. Use as an async context manager."""

    def __init__(self) -> None:
        self._pools: OrderedDict[ClientProfile, Pool] = OrderedDict()
        self._closing: Final = BackgroundTasks()
        self._lookups = DaemonThreadPool(MAX_LOOKUPS)
        self._shared: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._shared = self._open(ClientProfile(guard=AddressGuard()), steps_of_requests())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pools, self._pools = self._pools, OrderedDict()
        for pool in pools.values():
            await pool.session.close()
        await self._closing.wait()
        await self.shared.close()
        await self._lookups.stop()

    @property
    def shared(self) -> aiohttp.ClientSession:
        """The session for plugins (`Context.http`): private addresses are refused."""
        if self._shared is None:
            raise RuntimeError("HTTP clients are used before they are started")
        return self._shared

    async def addresses_of(self, host: str) -> list[str]:
        """Return the addresses of a host name.

        Raises:
            OSError: it cannot be looked up.
        """
        return [found["host"] for found in await DaemonResolver(self._lookups).resolve(host)]

    def pool(self, profile: ClientProfile) -> Pool:
        """Return the pool of a profile: `async with clients.pool(profile) as session`."""
        pool = self._pools.get(profile)
        if pool is None:
            self._make_room()
            pool = self._pools[profile] = Pool(self._open(profile), proxy=profile.proxy)
        self._pools.move_to_end(profile)
        return pool

    def _make_room(self) -> None:
        """Close the pools that were not used for longest, for one more; none that is in use."""
        unused = [profile for profile, pool in self._pools.items() if not pool.users]
        for profile in unused[: max(0, len(self._pools) + 1 - MAX_POOLS)]:
            session = self._pools.pop(profile).session
            self._closing.begin(session.close(), name="close a pool of connections")

    def _open(self, profile: ClientProfile, *observed_by: aiohttp.TraceConfig) -> aiohttp.ClientSession:
        connector = BoundedConnector(
            limit=0,
            resolver=DaemonResolver(self._lookups),
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
        self._factory = partial(handler, loop=self._loop)


class _BoundedHandler(ResponseHandler):
    _interim = 0

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        self._interim = self._interim + 1 if 100 <= data[0].code < 200 else 0
        if self._interim <= MAX_INTERIM:
            super().feed_data(data, size)
        elif self.transport is not None and not self.transport.is_closing():
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
        infos = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a label that is empty or over 63 characters
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from error
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return [
        ResolveResult(hostname=host, host=str(address[0]), port=port, family=found, proto=protocol, flags=flags)
        for found, _, protocol, _, address in infos
    ]
