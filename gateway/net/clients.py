"""The HTTP clients of executors: a pool of connections for each kind that must not be mixed.

How many requests may run at once is the business of `concurrency`.
"""

from collections import OrderedDict
from types import TracebackType
from typing import Final, Self

from aiohttp import ClientSession

from gateway.background_tasks import BackgroundTasks
from gateway.net.client_sessions import ClientProfile, DaemonResolver, open_pool, open_shared_session
from gateway.net.connection_pool import Pool
from gateway.threads import DaemonThreadPool

MAX_POOLS: Final = 64
"""Pools that are kept; beyond that the longest unused one is closed (reloads may leave some behind)."""

MAX_LOOKUPS: Final = 16
"""Host names that may be looked up at once. These threads are for lookups alone: a stuck plugin must not stop them."""


class HttpClients:
    """Owns the pools. Use as an async context manager."""

    def __init__(self) -> None:
        self._pools: OrderedDict[ClientProfile, Pool] = OrderedDict()
        self._closing: Final = BackgroundTasks()
        self._lookups = DaemonThreadPool(MAX_LOOKUPS)
        self._shared: ClientSession | None = None
        self._is_open = False

    async def __aenter__(self) -> Self:
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_open = False
        pools, self._pools = self._pools, OrderedDict()
        for pool in pools.values():
            await pool.session.close()
        await self._closing.wait()
        if self._shared is not None:
            await self._shared.close()
        await self._lookups.stop()

    @property
    def shared(self) -> ClientSession:
        """The session for plugins (`Context.http`): private addresses are refused."""
        if not self._is_open:
            raise RuntimeError("HTTP clients are used before they are started")
        if self._shared is None:
            self._shared = open_shared_session(self._lookups)
        return self._shared

    async def addresses_of(self, host: str) -> list[str]:
        """Return the addresses of a host name.

        Raises:
            OSError: it cannot be looked up.
        """
        resolver = DaemonResolver(self._lookups)
        return [found["host"] for found in await resolver.resolve(host)]

    def pool(self, profile: ClientProfile) -> Pool:
        """Return the pool of a profile: `async with clients.pool(profile) as session`."""
        pool = self._pools.get(profile)
        if pool is None:
            self._make_room()
            pool = self._pools[profile] = open_pool(profile, self._lookups)
        self._pools.move_to_end(profile)
        return pool

    def _make_room(self) -> None:
        """Close the pools that were not used for longest, for one more; none that is in use."""
        unused = [profile for profile, pool in self._pools.items() if not pool.users]
        for profile in unused[: max(0, len(self._pools) + 1 - MAX_POOLS)]:
            session = self._pools.pop(profile).session
            # Not awaited: were there a wait between look-up and entry, `pool` could open two for one profile.
            self._closing.begin(session.close(), name="close a pool of connections")
