"""Limits sessions, streams, connections and unread response bytes, in total and per caller.

The limit per caller prevents a single caller from using up the total.
"""

import asyncio
import resource
import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import Final

import msgspec
import structlog

from gateway.config.models.server import Quota, SizeShares
from gateway.errors import ExecutionError
from gateway.limits.fair_semaphore import FairSemaphore, Semaphores
from gateway.state.redis_limits import RedisSemaphores
from gateway.transports.errors import RETRY, HttpError

log: Final = structlog.get_logger(__name__)

EXEMPT_BYTES: Final = 64 * 1024
"""Unread bytes per connection that quotas ignore: aiohttp buffers up to 64 KiB before it waits for the client."""
WRITE_TIMEOUT_SECONDS: Final = 30.0
"""The timeout of a write to a slow reader."""
_REMEMBERED_REFUSALS: Final = 100
_MIN_PER_CALLER: Final = 100
"""By default, one caller can use half of the total, but at least this number (or the total, if smaller)."""
_STORE_TIMEOUT_SECONDS: Final = 5.0
"""The timeout of a request to the shared store."""
_MAX_CONNECTIONS: Final = 65_536
_FEW_CONNECTIONS: Final = 1000
_MAX_ADMIN_CONNECTIONS: Final = 32


class Usage:
    """Counts the amounts in use, in total and by caller. The caller `""` has no limit per caller."""

    def __init__(self, *, per_caller: int, in_all: int) -> None:
        self.per_caller: Final = per_caller
        self.in_all: Final = in_all
        self.refused = 0
        self._used: Final[Counter[str]] = Counter()
        self._sum = 0

    def __len__(self) -> int:
        return self._sum

    @property
    def used_by_caller(self) -> Mapping[str, int]:
        return self._used

    def is_exhausted(self, amount: int = 1) -> bool:
        """Return whether this amount exceeds the remaining total. If nothing is in use, every amount is allowed."""
        return self._sum > 0 and self._sum + amount > self.in_all

    def is_exhausted_for(self, caller: str, amount: int = 1) -> bool:
        """Return whether this amount exceeds the caller's limit. If the caller uses nothing, any amount is allowed."""
        used = self._used[caller] if caller else 0
        return used > 0 and used + amount > self.per_caller

    def acquire(self, caller: str, amount: int = 1) -> None:
        if amount:  # otherwise no `release` would delete the entry
            self._used[caller] += amount
            self._sum += amount

    def release(self, caller: str, amount: int = 1) -> None:
        self._sum -= amount
        self._used[caller] -= amount
        # Delete empty entries, because entries of past callers would accumulate.
        if not self._used[caller]:
            del self._used[caller]


class ResourceQuota(Usage):
    """Limits the number of sessions, streams or connections by refusing new ones."""

    def __init__(self, shares: Quota, *, noun: str, default: int, is_configured: bool = False) -> None:
        """`noun` is the quota's key under `limits`. `default` is the total if the configuration sets none.

        A configured quota (`is_configured`) applies to all replicas together. A default quota applies to each process.
        """
        in_all = shares.in_all or default
        super().__init__(per_caller=shares.per_caller or max(in_all // 2, min(in_all, _MIN_PER_CALLER)), in_all=in_all)
        self.has_default_share: Final = shares.per_caller is None
        """Whether the configuration does not set a limit per caller."""
        self.is_configured: Final = is_configured
        self.refusals: Final[deque[tuple[float, str]]] = deque(maxlen=_REMEMBERED_REFUSALS)
        """The Unix times and callers of the last refusals."""
        self._noun: Final = noun
        self._store: RedisSemaphores | None = None
        """The shared count of all replicas, or None if the quota applies per process."""
        self._shared: tuple[Semaphores, Semaphores] | None = None
        """The semaphores that all replicas share: one for each caller, and one for the total."""

    def refusal_of(self, caller: str) -> HttpError | None:
        """Return an error if the total or the caller's limit is reached. An empty caller has only the total limit."""
        if self.is_exhausted():
            return self.refusal(caller)
        return self.refusal(caller, is_callers=True) if self.is_exhausted_for(caller) else None

    def refusal(self, caller: str, *, is_callers: bool = False) -> HttpError:
        """Record a refusal, and return an error that names the limit: per caller (`is_callers`) or in total."""
        self.refused += 1
        self.refusals.append((time.time(), caller))
        reason = f"All {self.in_all} {self._noun} are in use (limits.{self._noun})"
        if is_callers:
            # Connections are counted before their caller is known.
            whose = "address" if self._noun == "connections" else "caller"
            reason = (
                f"You have {self.per_caller} {self._noun}, the maximum per {whose} (limits.{self._noun}.per_caller)"
            )
        return HttpError(status=503, message=reason, headers=RETRY)

    def share(self, store: RedisSemaphores) -> None:
        """Count a configured quota across all replicas."""
        if self.is_configured:
            self._store = store
            self._shared = Semaphores(self._noun, store=store), Semaphores(f"all {self._noun}", store=store)

    @property
    def is_shared(self) -> bool:
        """Return whether the quota currently applies to all replicas."""
        return self._store is not None and not self._store.is_unavailable

    async def reserve(self, caller: str) -> HttpError | None:
        """Reserve one session, stream or connection until `release`, or return an error."""
        if (refusal := self.refusal_of(caller)) is not None:
            return refusal
        # Count here before asking the store, so that concurrent requests see this reservation.
        self.acquire(caller)
        taken: list[FairSemaphore] = []
        try:
            for semaphore, most in self._semaphores(caller):
                deadline = asyncio.get_running_loop().time() + _STORE_TIMEOUT_SECONDS
                await semaphore.acquire((most, 0), caller=caller, deadline=deadline, name=self._noun)
                taken.append(semaphore)
        # Release everything, even if cancelled.
        except BaseException as error:
            for each in taken:
                each.release()
            super().release(caller)
            if not isinstance(error, ExecutionError):
                raise
            return self.refusal(caller, is_callers=bool(caller) and not taken)
        return None

    def release(self, caller: str, amount: int = 1, *, is_only_here: bool = False) -> None:
        """Release a reservation. With `is_only_here`, the shared count does not include it."""
        super().release(caller, amount)
        for semaphore, _ in () if is_only_here else self._semaphores(caller):
            semaphore.release()

    def _semaphores(self, caller: str) -> list[tuple[FairSemaphore, int]]:
        """Return the semaphores for the caller and for the total, each with its limit."""
        if self._shared is None:
            return []
        callers, total = self._shared
        own = [(callers[caller], self.per_caller)] if caller else []
        return [*own, (total[""], self.in_all)]


class WriteQuota(Usage):
    """Limits the response bytes that are waiting to be written or have not been read by the client.

    The quota protects against clients that request large responses on many connections without reading them. When the
    quota is exhausted, responses wait. If the waiting responses would also exceed the quota, further responses are
    refused. A response that is larger than the whole quota is written when no other response is counted. Small
    responses and events are exempt, because connection buffers and the write timeout already limit them.
    """

    def __init__(self, shares: SizeShares | None = None) -> None:
        shares = shares or SizeShares()
        super().__init__(per_caller=shares.per_caller, in_all=shares.in_all)
        self._waiting: Final = Usage(per_caller=shares.per_caller, in_all=shares.in_all)
        self._turns: Final[dict[str, deque[tuple[int, asyncio.Future[None]]]]] = {}
        """The waiting responses by caller, each with its size and a future that completes when capacity is granted."""

    def take(self, caller: str, size: int) -> bool:
        if caller in self._turns or not _has_room(self, caller, size):
            return False
        self.acquire(caller, size)
        return True

    async def wait(self, caller: str, size: int, *, seconds: float) -> bool:
        """Wait for capacity and reserve `size` bytes. Return False after `seconds`, or if too many bytes already wait.

        A size of 0 only waits for the caller's earlier responses.
        """
        if not _has_room(self._waiting, caller, size):
            self.refused += 1
            return False
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        turns = self._turns.setdefault(caller, deque())
        turns.append((size, granted))
        self._waiting.acquire(caller, size)
        try:
            # `asyncio.timeout` would drop a turn that is granted at the moment of the timeout.
            await asyncio.wait([granted], timeout=seconds)
        except asyncio.CancelledError:
            # Release a turn that was granted before the task was cancelled.
            if granted.done():
                super().release(caller, size)
            raise
        finally:
            turns.remove((size, granted))
            if not turns:
                del self._turns[caller]
            if not granted.done():
                self.refused += 1
                self._waiting.release(caller, size)
            self._grant()  # The next response may fit.
        return granted.done()

    def release(self, caller: str, amount: int = 1) -> None:
        super().release(caller, amount)
        self._grant()

    def _grant(self) -> None:
        """Grant capacity to each caller's first waiting response, if the response fits.

        The caller's next response can be granted after the first response has left the queue.
        """
        for caller, turns in self._turns.items():
            size, granted = turns[0]
            if not granted.done() and _has_room(self, caller, size):
                self._waiting.release(caller, size)
                self.acquire(caller, size)
                granted.set_result(None)


class RequestLimits(msgspec.Struct, frozen=True, kw_only=True):
    keepalive: float
    """The interval between keep-alive comments of event streams, in seconds."""
    max_body: int = 0
    """The maximum size of a body in bytes, or 0 if bodies are not read."""
    receive_seconds: float = 30.0
    """The timeout for receiving the body."""
    write_timeout: float = WRITE_TIMEOUT_SECONDS
    quota: WriteQuota = msgspec.field(default_factory=WriteQuota)
    """The quota of response bytes that clients have not read yet."""


def _has_room(usage: Usage, caller: str, size: int) -> bool:
    return not size or not (usage.is_exhausted(size) or usage.is_exhausted_for(caller, size))


def connection_quota(shares: Quota, *, has_proxies: bool = False) -> ResourceQuota:
    """Return the quota for `limits.connections`. By default, connections can use most of the file descriptors.

    With trusted proxies, the default limit per caller equals the total limit, because the proxies open all connections.
    """
    most = _most_connections()
    if most < _FEW_CONNECTIONS:
        log.warning("the limit for open files allows only a few connections. Raise `ulimit -n`", connections=most)
    if has_proxies and shares.per_caller is None:
        shares = Quota(per_caller=shares.in_all or most, in_all=shares.in_all)
    return ResourceQuota(shares, noun="connections", default=most)


def admin_connection_quota() -> ResourceQuota:
    return ResourceQuota(
        Quota(), noun="connections", default=max(1, min(_MAX_ADMIN_CONNECTIONS, _most_connections() // 4))
    )


def _most_connections() -> int:
    """Return three quarters of the limit for file descriptors. Files and child processes need descriptors too."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_CONNECTIONS if limit == resource.RLIM_INFINITY else max(1, min(_MAX_CONNECTIONS, limit * 3 // 4))
