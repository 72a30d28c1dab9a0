"""Pools of HTTP connections, one for each kind of connection that must not be mixed; each with its address guard.

Lean on purpose: no cookie jar (two callers must not share cookies), no total timer (calls have deadlines), no proxy and
no credentials from the environment. How many requests may run at once is the business of `concurrency`.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import aiohttp

from gateway import __version__
from gateway.executors.http.address_guard import AddressGuard
from gateway.executors.http.connector import BoundedConnector
from gateway.executors.http.dns import DaemonResolver
from gateway.executors.http.tls import ClientTrust
from gateway.executors.http.traced import steps_of_requests
from gateway.executors.threads import Threads

MAX_POOLS: Final = 64
"""Pools that are kept; beyond that the longest unused one is closed (reloads may leave some behind)."""

MAX_LOOKUPS: Final = 16
"""Host names that may be looked up at once. These threads are no one else's: a stuck plugin must not stop lookups."""

USER_AGENT: Final = f"mcp-gateway/{__version__}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientProfile:
    """What keeps connections apart."""

    guard: AddressGuard
    proxy: str | None = None
    """Its sockets all lead to the proxy, so that the guard has to let them."""
    trust: ClientTrust | None = None


@dataclass(slots=True)
class _Pool:
    session: aiohttp.ClientSession
    users: int = 0


class HttpClients:
    """Owns the pools. Use as an async context manager."""

    def __init__(self) -> None:
        self._pools: OrderedDict[ClientProfile, _Pool] = OrderedDict()
        self._lookups = Threads(MAX_LOOKUPS)
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
        await self.shared.close()
        await self._lookups.stop()

    @property
    def shared(self) -> aiohttp.ClientSession:
        """The session for plugins (`Context.http`): private addresses are refused."""
        if self._shared is None:
            raise RuntimeError("HTTP clients are used before they are started")
        return self._shared

    async def addresses_of(self, host: str) -> list[str]:
        """Where a name leads.

        Raises:
            OSError: it cannot be looked up.
        """
        return [found["host"] for found in await DaemonResolver(self._lookups).resolve(host)]

    @asynccontextmanager
    async def borrowed(self, profile: ClientProfile) -> AsyncIterator[aiohttp.ClientSession]:
        """Lend the session of a pool, which stays open at least as long."""
        pool = self._pools.get(profile)
        if pool is None:
            pool = self._pools[profile] = _Pool(self._open(profile))
        pool.users += 1
        try:
            self._pools.move_to_end(profile)
            await self._close_surplus()
            yield pool.session
        finally:
            pool.users -= 1

    async def _close_surplus(self) -> None:
        if len(self._pools) <= MAX_POOLS:
            return
        unused = next((profile for profile, pool in self._pools.items() if not pool.users), None)
        if unused is not None:
            await self._pools.pop(unused).session.close()

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
