"""Limits concurrent sessions, streams or connections, in total and per caller.

The limit per caller prevents a single caller from using up the total.
"""

import asyncio
import resource
import time
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import structlog

from gateway.config.models.server import Quota
from gateway.errors import ExecutionError
from gateway.limits.fair_semaphore import FairSemaphore
from gateway.limits.shared_capacity import Semaphores
from gateway.state.redis_semaphores import RedisSemaphores
from gateway.state.redis_sessions import RedisSessionCount
from gateway.transports.errors import RETRY, HttpError

log: Final = structlog.get_logger(__name__)

_REMEMBERED_REFUSALS: Final = 100
_SMALL: Final = 100
"""Totals up to this number are not divided between callers."""
_ANSWER_SECONDS: Final = 5.0
"""The timeout of a request to the shared store."""
_SHARE_OF_DESCRIPTORS: Final = 0.75
"""The fraction of descriptors for connections. The rest is for child processes, files and outbound connections."""
_RESERVED: Final = 24
"""The minimum number of descriptors kept for other uses."""
_UNKNOWN: Final = 32
"""The assumed number of open descriptors, if the system does not report it."""
_MAX_CONNECTIONS: Final = 65_536
_FEW_CONNECTIONS: Final = 1000
_MOST_OF_OPERATORS: Final = 32
"""The maximum number of connections to the admin listener."""


class Refusal(msgspec.Struct, frozen=True):
    at: float
    """Unix time."""
    caller: str


class ResourceQuota:
    def __init__(self, shares: Quota, *, noun: str, default: int, is_written: bool = False) -> None:
        """`noun` is the key under `limits`, and `default` the total if the key is not set.

        A configured quota (`is_written`) applies to all replicas together. The default applies per process.
        """
        self.in_all: Final = shares.in_all or default
        self.per_caller: Final = shares.per_caller or max(self.in_all // 2, min(self.in_all, _SMALL))
        self.is_share_unsaid: Final = shares.per_caller is None
        """Whether the file sets no limit per caller."""
        self.is_written: Final = is_written
        self.refused = 0
        self.refusals: Final[deque[Refusal]] = deque(maxlen=_REMEMBERED_REFUSALS)
        self._noun: Final = noun
        self._used: Final[Counter[str]] = Counter()
        self._sum = 0
        self._shared: SharedQuota | None = None
        self.store: RedisSemaphores | RedisSessionCount | None = None
        """The shared count of all replicas; None if this process counts alone."""

    @property
    def used_by_caller(self) -> Mapping[str, int]:
        return self._used

    def __len__(self) -> int:
        return self._sum

    def refusal_of(self, caller: str) -> HttpError | None:
        """Return an error if the caller has reached a limit. An empty name means an unknown caller."""
        if self._sum >= self.in_all:
            return self.refusal(caller)
        if caller and self._used[caller] >= self.per_caller:
            return self.refusal(caller, is_callers=True)
        return None

    def refusal(self, caller: str, *, is_callers: bool = False) -> HttpError:
        """Record and return a refusal by the caller's limit (`is_callers`) or by the total."""
        self.refused += 1
        self.refusals.append(Refusal(time.time(), caller))
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
        if self.is_written:
            self._shared = SharedQuota(store, noun=self._noun)
            self.store = store

    @property
    def is_shared(self) -> bool:
        """Return whether the quota currently applies to all replicas."""
        return self.store is not None and not self.store.is_unavailable

    async def reserve(self, caller: str) -> HttpError | None:
        """Reserve one until `release`, or return an error."""
        if (refusal := self.refusal_of(caller)) is not None:
            return refusal
        # Count before asking the store, so that concurrent requests are included.
        self.acquire(caller)
        if self._shared is None:
            return None
        full: str | None = None
        is_taken = False
        try:
            full = await self._shared.acquire(caller, per_caller=self.per_caller, in_all=self.in_all)
            is_taken = full is None
        finally:
            # The store refused, or the task was cancelled.
            if not is_taken:
                self._count_out(caller)
        return None if full is None else self.refusal(caller, is_callers=bool(full))

    def acquire(self, caller: str) -> None:
        self._used[caller] += 1
        self._sum += 1

    def release(self, caller: str) -> None:
        self._count_out(caller)
        if self._shared is not None:
            self._shared.release(caller)

    def _count_out(self, caller: str) -> None:
        self._sum -= 1
        self._used[caller] -= 1
        # Without this, entries of past callers would accumulate.
        if not self._used[caller]:
            del self._used[caller]


class SharedQuota:
    """This replica's part of a quota shared by all replicas."""

    def __init__(self, store: RedisSemaphores, *, noun: str) -> None:
        self._noun: Final = noun
        self._callers: Final = Semaphores(noun, store=store)
        self._all: Final = Semaphores(f"all {noun}", store=store)

    async def acquire(self, caller: str, *, per_caller: int, in_all: int) -> str | None:
        """Reserve one. On failure, return the key of the exceeded limit: the caller, or empty for the total."""
        taken: list[FairSemaphore] = []
        # Check the caller's limit first, so that the total is not reserved in vain. Unknown callers have no limit of
        # their own.
        limits = [(self._callers, caller, per_caller), (self._all, "", in_all)]
        for semaphores, key, most in limits if caller else limits[1:]:
            semaphore = semaphores[key]
            deadline = asyncio.get_running_loop().time() + _ANSWER_SECONDS
            try:
                await semaphore.acquire((most, 0), caller=caller, deadline=deadline, name=self._noun)
            # Release earlier reservations, even if cancelled.
            except BaseException as error:
                for each in taken:
                    each.release()
                if isinstance(error, ExecutionError):
                    return key
                raise
            taken.append(semaphore)
        return None

    def release(self, caller: str) -> None:
        if caller:
            self._callers[caller].release()
        self._all[""].release()


def connection_quota(shares: Quota, *, has_proxies: bool = False) -> ResourceQuota:
    """Return the quota of `limits.connections`. The default is most of the free descriptors.

    There is no default limit per caller with trusted proxies, because they open all connections.
    """
    most = _most_connections()
    if most < _FEW_CONNECTIONS:
        log.warning("the limit of open files allows few connections; raise `ulimit -n`", connections=most)
    if has_proxies and shares.per_caller is None:
        shares = Quota(per_caller=shares.in_all or most, in_all=shares.in_all)
    return ResourceQuota(shares, noun="connections", default=most)


def admin_connection_quota() -> ResourceQuota:
    return ResourceQuota(Quota(), noun="connections", default=max(1, min(_MOST_OF_OPERATORS, _most_connections() // 4)))


def _most_connections() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    free = limit - _open_descriptors()
    return max(1, min(_MAX_CONNECTIONS, int(free * _SHARE_OF_DESCRIPTORS), free - _RESERVED))


def _open_descriptors() -> int:
    try:
        return len(list(Path("/dev/fd").iterdir()))
    except OSError:
        return _UNKNOWN
