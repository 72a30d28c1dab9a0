"""Limits how many sessions, streams or connections there are at once, in all and of one caller.

Why a limit per caller: without one, a single caller takes all there are, and every other is refused.
"""

import asyncio
import resource
import time
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from gateway.config.models.server import Quota
from gateway.errors import ExecutionError
from gateway.limits.fair_semaphore import FairSemaphore
from gateway.limits.shared_capacity import Semaphores
from gateway.state.redis_semaphores import RedisSemaphores
from gateway.state.redis_sessions import RedisSessionCount
from gateway.transports.errors import RETRY, HttpError

_REMEMBERED_REFUSALS: Final = 100
_SMALL: Final = 100
"""A total up to this is not divided between callers."""
_ANSWER_SECONDS: Final = 5.0
"""How long the store of all replicas may take."""
_SHARE_OF_DESCRIPTORS: Final = 0.75
"""Of those that are free at the start. The others are for children, files and connections to elsewhere."""
_RESERVED: Final = 24
"""Descriptors that are left to these, however few there are: some children at once, a reload, a backend or two."""
_UNKNOWN: Final = 32
"""How many are taken as open already where the system does not say."""
_MAX_CONNECTIONS: Final = 65_536
_MOST_OF_OPERATORS: Final = 32
"""Connections of the listener that is for operators alone."""


class Refusal(msgspec.Struct, frozen=True):
    """One caller who got no more."""

    at: float
    """Unix time."""
    caller: str


class ResourceQuota:
    """Counts how many sessions, streams or connections are in use, by caller and in all."""

    def __init__(self, shares: Quota, *, noun: str, default: int, is_written: bool = False) -> None:
        """Count nothing yet; `noun` is what they are called under `limits`, `default` how many there are unsaid.

        What the file says (`is_written`) holds for all replicas together, and what it does not, for each.
        """
        self.in_all: Final = shares.in_all or default
        self.per_caller: Final = shares.per_caller or max(self.in_all // 2, min(self.in_all, _SMALL))
        self.is_share_unsaid: Final = shares.per_caller is None
        """Whether the file leaves it to us what one caller may have."""
        self.is_written: Final = is_written
        self.refused = 0
        self.refusals: Final[deque[Refusal]] = deque(maxlen=_REMEMBERED_REFUSALS)
        """The newest of them."""
        self._noun: Final = noun
        self._used: Final[Counter[str]] = Counter()
        self._sum = 0
        self._shared: SharedQuota | None = None
        self.store: RedisSemaphores | RedisSessionCount | None = None
        """What all replicas are counted in; None: this process counts alone."""

    @property
    def used_by_caller(self) -> Mapping[str, int]:
        return self._used

    def __len__(self) -> int:
        return self._sum

    def refusal_of(self, caller: str) -> HttpError | None:
        """Return why this caller may have no more; None if it may. An empty name stands for all unknown callers."""
        if self._sum >= self.in_all:
            return self.refusal(caller)
        if caller and self._used[caller] >= self.per_caller:
            return self.refusal(caller, is_callers=True)
        return None

    def refusal(self, caller: str, *, is_callers: bool = False) -> HttpError:
        """Refuse a caller, and say why: all are taken, or those that one caller may have."""
        self.refused += 1
        self.refusals.append(Refusal(time.time(), caller))
        reason = f"All {self.in_all} {self._noun} are taken (limits.{self._noun})"
        if is_callers:
            reason = (
                f"{self.per_caller} {self._noun} are yours, and no caller has more (limits.{self._noun}.per_caller)"
            )
        return HttpError(status=503, message=reason, headers=RETRY)

    def share(self, store: RedisSemaphores) -> None:
        """Count those over all replicas that `reserve` takes, if the file limits them."""
        if self.is_written:
            self._shared = SharedQuota(store, noun=self._noun)
            self.store = store

    @property
    def is_shared(self) -> bool:
        """Whether it holds for all replicas together now."""
        return self.store is not None and not self.store.is_away

    async def reserve(self, caller: str) -> HttpError | None:
        """Take one for a caller, until `release`; or return why there is none."""
        if (refusal := self.refusal_of(caller)) is not None:
            return refusal
        # Counted here before the store is asked: who comes while that answers must find it taken.
        self.acquire(caller)
        if self._shared is None:
            return None
        full: str | None = None
        is_taken = False
        try:
            full = await self._shared.acquire(caller, per_caller=self.per_caller, in_all=self.in_all)
            is_taken = full is None
        finally:
            # Refused, or cancelled while the store was asked.
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
        # An entry for each caller that ever came would be memory without end.
        if not self._used[caller]:
            del self._used[caller]


class SharedQuota:
    """The part of this replica in what all replicas have in use, by caller and in all.

    Each has of them what the store gives it, and gives back what it does not use.
    """

    def __init__(self, store: RedisSemaphores, *, noun: str) -> None:
        self._noun: Final = noun
        self._callers: Final = Semaphores(noun, store=store)
        self._all: Final = Semaphores(f"all {noun}", store=store)

    async def acquire(self, caller: str, *, per_caller: int, in_all: int) -> str | None:
        """Take one for a caller; or return whose limit leaves none, the caller's or, as an empty name, that of all."""
        taken: list[FairSemaphore] = []
        # The caller's own limit first: nothing is taken of all in vain. An unknown caller has that of all alone.
        limits = [(self._callers, caller, per_caller), (self._all, "", in_all)]
        for semaphores, key, most in limits if caller else limits[1:]:
            semaphore = semaphores[key]
            deadline = asyncio.get_running_loop().time() + _ANSWER_SECONDS
            try:
                await semaphore.acquire((most, 0), caller=caller, deadline=deadline, name=self._noun)
            # Also when cancelled: what was taken already is given back.
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
    """Return the quota of `limits.connections`; by default, most of the descriptors that are free now.

    Where proxies are named, connections are theirs and nobody's share: who calls through them is told by headers.
    """
    most = _most_connections()
    if has_proxies and shares.per_caller is None:
        shares = Quota(per_caller=shares.in_all or most, in_all=shares.in_all)
    return ResourceQuota(shares, noun="connections", default=most)


def admin_connection_quota() -> ResourceQuota:
    """For a listener that a few people and probes use, beside the one that all others do."""
    return ResourceQuota(Quota(), noun="connections", default=max(1, min(_MOST_OF_OPERATORS, _most_connections() // 4)))


def _most_connections() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    free = limit - _open_descriptors()
    return max(1, min(_MAX_CONNECTIONS, int(free * _SHARE_OF_DESCRIPTORS), free - _RESERVED))


def _open_descriptors() -> int:
    try:
        return len(list(Path("/proc/self/fd").iterdir()))
    except OSError:
        return _UNKNOWN
