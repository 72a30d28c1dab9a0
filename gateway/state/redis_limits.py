"""Limits that replicas share. All times come from the clock of Redis, because the clocks of replicas can differ.

Each rate has a Redis hash per caller. The fields are times, and the values are numbers of calls.

Each semaphore, for example for concurrent calls, has a Redis hash with the number of slots of each replica. A waiting
call claims a slot again and again. Slots of a dead replica are freed after `LEASE_SECONDS`.

All keys of a script must be in one slot of a Redis Cluster. Hash tags in the key names ensure this.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Self
from weakref import WeakSet

from gateway.background_tasks import BackgroundTasks
from gateway.errors import StoreUnavailableError
from gateway.state.redis_connection import RedisConnection

# Check all rates before counting, so that refused calls do not count. Times are rounded up, so that calls which share a
# time expire too late rather than too early.
_TAKE: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local cost, resolution = tonumber(ARGV[1]), tonumber(ARGV[2])
for number, key in ipairs(KEYS) do
  local amount, lasts = tonumber(ARGV[2 * number + 1]), tonumber(ARGV[2 * number + 2])
  local found, calls, used = redis.call('HGETALL', key), {}, 0
  for at = 1, #found, 2 do
    local begun, count = tonumber(found[at]), tonumber(found[at + 1])
    if begun + lasts <= now then redis.call('HDEL', key, found[at])
    else
      used = used + count
      calls[#calls + 1] = {begun, count}
    end
  end
  local over = used + cost - amount
  if over > 0 then
    table.sort(calls, function(one, other) return one[1] < other[1] end)
    for _, call in ipairs(calls) do
      over = over - call[2]
      if over <= 0 then return {number, math.max(1, call[1] + lasts - now)} end
    end
    return {number, lasts}
  end
end
for number, key in ipairs(KEYS) do
  local amount, lasts = tonumber(ARGV[2 * number + 1]), tonumber(ARGV[2 * number + 2])
  local step = lasts / resolution
  local at = amount <= resolution and now or math.ceil(now / step) * step
  redis.call('HINCRBY', key, string.format('%d', at), cost)
  redis.call('PEXPIRE', key, string.format('%d', 2 * lasts))
end
return {0, 0}
"""
"""Arguments: the cost, the maximum number of different times in a hash, and the amount and milliseconds of each rate.
Returns the number of the exceeded rate (from 1) and the milliseconds to wait, or two zeros if no rate is exceeded.
"""
# The hash does not identify calls, so reduce the count of the newest time.
_REFUND: Final = """
for _, key in ipairs(KEYS) do
  local last = -1
  for _, at in ipairs(redis.call('HKEYS', key)) do last = math.max(last, tonumber(at)) end
  local field = string.format('%d', last)
  if last >= 0 and redis.call('HINCRBY', key, field, -1) <= 0 then redis.call('HDEL', key, field) end
end
return 0
"""


class RedisRates:
    def __init__(self, store: RedisConnection) -> None:
        self._store: Final = store

    @property
    def is_unavailable(self) -> bool:
        return self._store.is_unavailable

    async def take(
        self, name: str, callers: Sequence[str], rates: Sequence[tuple[int, int]], *, cost: int, resolution: int
    ) -> tuple[int, float] | None:
        """Count calls against rates (amount, seconds). If a rate is exceeded, return its index and the seconds to wait.

        Rates above `resolution` calls are stored with `resolution` time steps per period, to limit the size of the
        hash.
        """
        values = [value for amount, seconds in rates for value in (amount, seconds * 1000)]
        number, wait = await self._store.attempt(_TAKE, self._keys(name, callers), cost, resolution, *values)
        return None if number == 0 else (number - 1, wait / 1000)

    async def refund(self, name: str, callers: Sequence[str]) -> None:
        await self._store.attempt(_REFUND, self._keys(name, callers))

    def _keys(self, name: str, callers: Sequence[str]) -> list[str]:
        return [f"{self._store.prefix}rate:{{{name}}}:{caller}" for caller in callers]


LEASE_SECONDS: Final = 15
# A third of the lease, so that one renewal can fail.
_RENEW_SECONDS: Final = 5.0
_KEPT_SECONDS: Final = 3600
"""Unused limits expire after this time. Limits in use are renewed earlier."""
_POLL_SECONDS: Final = 0.05
"""The interval at which a waiting call claims a slot again."""
_YIELD_SECONDS: Final = 1.0
"""While calls wait, a replica leaves released slots to other replicas at this interval for two polls."""

_HOLD: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local limit, used, wanted = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
redis.call('ZADD', KEYS[2], now + ARGV[5], ARGV[1])
local lives, free, found = {}, limit, redis.call('HGETALL', KEYS[1])
local there = redis.call('ZRANGEBYSCORE', KEYS[2], string.format('%d', now), '+inf')
for _, replica in ipairs(there) do lives[replica] = true end
for at = 1, #found, 2 do
  if not lives[found[at]] then redis.call('HDEL', KEYS[1], found[at])
  elseif found[at] ~= ARGV[1] then free = free - found[at + 1] end
end
local granted = math.max(used, math.min(wanted, free))
if granted == 0 then redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], string.format('%d', granted))
  redis.call('PEXPIRE', KEYS[1], ARGV[6])
end
return granted
"""
"""Arguments: this replica, the limit, the used slots, the wanted slots, and two times in milliseconds (lease, and
expiry of the hash). Returns the number of slots for this replica.
"""
_LIVE: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local last = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or '0')
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return last >= now and 1 or 0
"""


class RedisSemaphores:
    """The limits that replicas share. This replica keeps its slots until the `async with` block ends."""

    def __init__(self, store: RedisConnection, replica: str) -> None:
        self._store: Final = store
        self._replica: Final = replica
        # Keys of one script must be in one slot (Redis Cluster specification, "Hash tags").
        self._live_key: Final = f"{store.prefix}{{limits}}"
        self._tasks: Final = BackgroundTasks()
        self._slots: Final[WeakSet[RedisSlots]] = WeakSet()
        store.on_return(self._report_all)

    async def __aenter__(self) -> Self:
        self._tasks.begin(self._renew(), name="limits: renew")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tasks.cancel()
        # Free the slots of this replica now instead of when the lease ends.
        if not self._store.is_unavailable:
            with suppress(StoreUnavailableError):
                await self._store.command("ZREM", self._live_key, self._replica)

    @property
    def is_unavailable(self) -> bool:
        return self._store.is_unavailable

    def slots(self, name: str) -> "RedisSlots":
        slots = RedisSlots(self, name=name)
        self._slots.add(slots)
        return slots

    async def hold(self, name: str, *, limit: int, used: int, wanted: int) -> int:
        """Report the used slots of a limit and claim `wanted` slots. Return the number of slots of this replica."""
        keys = [f"{self._live_key}:{name}", self._live_key]
        times = (LEASE_SECONDS * 1000, _KEPT_SECONDS * 1000)
        granted: int = await self._store.attempt(_HOLD, keys, self._replica, limit, used, wanted, *times)
        return granted

    async def _renew(self) -> None:
        rounds = 0
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            rounds += 1
            try:
                is_kept = await self._store.run(_LIVE, [self._live_key], self._replica, LEASE_SECONDS * 1000)
            except StoreUnavailableError:
                await self._store.returned()
                continue
            # Report the slots again if the store has forgotten this replica, or before the limits expire.
            if not is_kept or rounds * _RENEW_SECONDS >= _KEPT_SECONDS / 3:
                rounds = 0
                await self._report_all()

    async def _report_all(self) -> None:
        for slots in list(self._slots):
            slots.report_again()


class RedisSlots:
    """The slots of one limit that this replica uses. While the store is unavailable, slots are not limited here."""

    def __init__(self, store: RedisSemaphores, *, name: str) -> None:
        self._store: Final = store
        self._name: Final = name
        self._limit = 0
        self._used = 0
        self._spare = 0
        """The number of slots that were claimed for calls which have not taken them yet."""
        self._reported: int | None = 0
        """The number of slots that the store has recorded for this replica. None if the number is unknown."""
        self._claims = 0
        self._is_full = False
        """Whether a call waits for a slot. Further calls wait behind this call."""
        self._yielded_at = 0.0
        self._turn: Final = asyncio.Lock()
        self._reporting: Final = asyncio.Lock()
        """The store must receive the reports in order."""
        self._tasks: Final = BackgroundTasks()

    @property
    def is_unused(self) -> bool:
        return not self._used and self._reported == 0

    async def take(self, limit: int, *, has_waited: bool, queue: float) -> bool:
        """Wait for a slot. Return False if no slot is free and more than `queue` calls would wait.

        `has_waited` is true if the call has waited for a slot of this replica.
        """
        self._limit = limit
        self._claims += 1
        try:
            if self._is_full and self._claims > queue:
                return False
            async with self._turn:
                return await self._take(has_waited=has_waited, queue=queue)
        finally:
            self._claims -= 1
            if not self._claims:
                self._spare = 0  # Return the slots that were claimed for cancelled calls.
                self._change(0)

    async def _take(self, *, has_waited: bool, queue: float) -> bool:
        now = asyncio.get_running_loop().time()
        if has_waited and now - self._yielded_at > _YIELD_SECONDS:
            self._yielded_at = now
            await asyncio.sleep(2 * _POLL_SECONDS)
        try:
            while not await self._claim():
                if self._claims > queue:
                    return False
                self._is_full = True
                await asyncio.sleep(_POLL_SECONDS)
        finally:
            self._is_full = False
        return True

    def take_over_limit(self) -> None:
        self._change(1)

    def release(self) -> None:
        self._change(-1)

    def report_again(self) -> None:
        """Report the used slots, because the store could have lost them or missed a release."""
        if not self.is_unused:
            self._reported = None
            self._change(0)

    def _change(self, by: int) -> None:
        self._used += by
        if self._reported != self._used + self._spare:
            self._tasks.begin(self._report(), name="limit: report")

    async def _report(self) -> None:
        async with self._reporting:
            if self._reported != self._used + self._spare:
                await self._hold(self._used + self._spare)

    async def _claim(self) -> bool:
        """Take a slot that an earlier call has claimed, or claim slots for all calls that wait here."""
        async with self._reporting:
            if not self._spare:
                await self._hold(self._used + self._claims)
            if not self._spare:
                return False
            self._spare -= 1
            self._used += 1
            return True

    async def _hold(self, wanted: int) -> None:
        used, held = self._used, wanted
        if not self._store.is_unavailable:
            self._reported = None
            with suppress(StoreUnavailableError):
                held = self._reported = await self._store.hold(self._name, limit=self._limit, used=used, wanted=wanted)
        # The last claim can have been cancelled meanwhile.
        self._spare = held - used if self._claims else 0
