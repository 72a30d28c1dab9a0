"""The access tokens that the gateway obtained for services, and the metadata of the servers that issue them.

Each is fetched once for all who ask for it at the same time, and kept for as long as it may be.
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
"""What is kept at the most: with token exchange that is one token of each caller."""


class SharedFetches(Generic[V]):
    """Values by key, fetched when they are asked for.

    A fetch belongs to nobody who waits for it: one who is cancelled leaves it to the others. So it has to be bounded in
    time by itself.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._kept: Final[BoundedMap[bytes, V]] = BoundedMap(_MAX_KEPT, clock=clock)
        self._running: Final[dict[bytes, asyncio.Task[V | ExecutionError]]] = {}

    async def close(self) -> None:
        """End what still runs."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def get(self, key: bytes, fetch: Callable[[], Awaitable[tuple[V, float]]]) -> V:
        """Return what is kept, or else what `fetch` returns: a value, and for how many seconds to keep it.

        Raises:
            ExecutionError: the fetch failed; everybody who waited for it is told the same, and nothing is kept.
        """
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        task = self._running.get(key)
        if task is None:
            # A context of its own: its log lines and spans belong to no single call.
            task = asyncio.get_running_loop().create_task(self._fetch(key, fetch), name="fetch", context=Context())
            self._running[key] = task
        await asyncio.wait([task])  # which leaves the task alone where the wait is cancelled
        if task.cancelled():
            raise ExecutionError("The server stopped before this was done")
        result = task.result()
        if isinstance(result, ExecutionError):
            # One for each who waits: a traceback grows with every raising of the same exception.
            raise ExecutionError(str(result)) from result
        return result

    def discard(self, key: bytes, is_bad: Callable[[V], bool]) -> None:
        """Forget a value that turned out to be no good, unless another one has taken its place."""
        kept = self._kept.get(key)
        if kept is not None and is_bad(kept):
            self._kept.discard(key)

    async def _fetch(self, key: bytes, fetch: Callable[[], Awaitable[tuple[V, float]]]) -> V | ExecutionError:
        try:
            value, seconds = await fetch()
        except ExecutionError as error:
            # Returned, because an exception that nobody waits for any more would be logged as never retrieved.
            return error
        finally:
            del self._running[key]
        # No await since `_running` lost it: the next who asks finds the value, and fetches no second one.
        if seconds > 0:
            self._kept.put(key, value, expires=self._clock() + seconds)
        return value


class OutboundTokens:
    """The access tokens that the gateway obtained; they outlive reloads. Use as an async context manager."""

    def __init__(self) -> None:
        self.tokens: Final[SharedFetches[AccessToken]] = SharedFetches()
        self.servers: Final[SharedFetches[ServerMetadata]] = SharedFetches()
        self.issuers: Final[dict[bytes, str | None]] = {}
        """The issuer that each client signs in at."""
        self.secrets: Final = ObtainedSecrets()
        """The tokens, for the redactor."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.tokens.close()
        await self.servers.close()
