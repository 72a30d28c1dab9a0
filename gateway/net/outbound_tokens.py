"""Caches access tokens for services, and metadata of the servers that issue them.

Concurrent requests share one fetch. Values are cached until they expire.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextvars import Context
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from gateway.bounded_map import BoundedMap
from gateway.config.secrets.redactor import ObtainedSecrets
from gateway.errors import ExecutionError
from gateway.net.server_metadata import ServerMetadata
from gateway.net.token_client import AccessToken

V = TypeVar("V")

_MAX_KEPT: Final = 4096
"""The maximum number of values. With token exchange, there is one token per caller."""


class SharedFetches(Generic[V]):
    """Caches values by key, and fetches them on demand.

    A fetch continues if a waiting caller is cancelled, because others can wait for it. Each fetch needs a timeout.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._kept: Final[BoundedMap[bytes, V]] = BoundedMap(_MAX_KEPT, clock=clock)
        self._running: Final[dict[bytes, asyncio.Task[V | ExecutionError]]] = {}

    async def close(self) -> None:
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def get(self, key: bytes, fetch: Callable[[], Awaitable[tuple[V, float]]]) -> V:
        """Return the cached value, or call `fetch`, which returns a value and the seconds to cache it.

        Raises:
            ExecutionError: The fetch failed. All waiting callers get this error, and nothing is cached.
        """
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        task = self._running.get(key)
        if task is None:
            # A separate context, because its log lines and spans do not belong to a single call.
            task = asyncio.get_running_loop().create_task(self._fetch(key, fetch), name="fetch", context=Context())
            self._running[key] = task
        await asyncio.wait([task])  # Does not cancel the task if the wait is cancelled.
        if task.cancelled():
            raise ExecutionError("The server is shutting down")
        result = task.result()
        if isinstance(result, ExecutionError):
            # A new exception for each caller, because a traceback grows each time its exception is raised.
            raise ExecutionError(str(result)) from result
        return result

    def discard(self, key: bytes, is_bad: Callable[[V], bool]) -> None:
        """Remove a rejected value, unless another one has replaced it."""
        kept = self._kept.get(key)
        if kept is not None and is_bad(kept):
            self._kept.discard(key)

    async def _fetch(self, key: bytes, fetch: Callable[[], Awaitable[tuple[V, float]]]) -> V | ExecutionError:
        try:
            value, seconds = await fetch()
        except ExecutionError as error:
            # Returned, because an exception that no task retrieves would be logged.
            return error
        finally:
            del self._running[key]
        # No await since the entry was removed from `_running`, so the next caller finds the value.
        if seconds > 0:
            self._kept.put(key, value, expires=self._clock() + seconds)
        return value


class OutboundTokens:
    """The access tokens of the gateway. They outlive reloads."""

    def __init__(self) -> None:
        self.tokens: Final[SharedFetches[AccessToken]] = SharedFetches()
        self.servers: Final[SharedFetches[ServerMetadata]] = SharedFetches()
        self.issuers: Final[dict[bytes, str | None]] = {}
        """The issuer that each client signs in at."""
        self.bound: Final[set[bytes]] = set()
        """Clients whose services require tokens that are bound to a key (DPoP)."""
        self.secrets: Final = ObtainedSecrets()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.tokens.close()
        await self.servers.close()
