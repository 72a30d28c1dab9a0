"""Limits that replicas share. All times come from the clock of Redis, because the clocks of replicas can differ.

Each rate has a Redis hash per caller. The fields are times, and the values are numbers of calls.

Each semaphore, for example for concurrent calls, has a Redis hash with a field per replica. A replica reports how many
slots it uses and wants, and receives the number of slots that it can use. The replica that has waited longest receives
the next free slot, and is notified. Slots of a dead replica are freed after `LEASE_SECONDS`.

All keys of a script must be in one slot of a Redis Cluster. Hash tags in the key names ensure this.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Self

from gateway.background_tasks import BackgroundTasks
from gateway.errors import StoreUnavailableError
from gateway.state.mailbox import Mailbox
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
_WAIT_SECONDS: Final = 2
"""How long a replica counts as waiting after a claim. A waiting replica repeats its claim sooner."""

_FREED: Final = "place free"

# A field of KEYS[1] is "slots used, waiting calls, waiting since, valid until".
_CLAIM: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local limit, used, wanted = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
redis.call('ZADD', KEYS[2], now + ARGV[5], ARGV[1])
local found, others, since, lives = redis.call('HGETALL', KEYS[1]), {}, now, {}
local there = redis.call('ZRANGEBYSCORE', KEYS[2], string.format('%d', now), '+inf')
for _, replica in ipairs(there) do lives[replica] = true end
for at = 1, #found, 2 do
  local replica = found[at]
  local held, waits, from, last = string.match(found[at + 1], '(%d+) (%d+) (%d+) (%d+)')
  if replica == ARGV[1] then
    if tonumber(waits) > 0 then since = tonumber(from) end
  elseif not lives[replica] then
    redis.call('HDEL', KEYS[1], replica)
  else
    if tonumber(last) < now then waits = 0 end
    others[#others + 1] = {replica, tonumber(held), tonumber(waits), tonumber(from)}
  end
end
local free, running, waiting, left, first = limit - used, 0, 0, limit - used, {'', math.huge}
for _, other in ipairs(others) do
  free, running, left = free - other[2], running + other[2], left - other[2]
  if other[3] > 0 and other[4] < first[2] then first = {other[1], other[4]} end
  waiting = waiting + other[3]
  if other[3] > 0 and (other[4] < since or (other[4] == since and other[1] < ARGV[1])) then free = free - other[3] end
end
local granted = math.max(0, math.min(wanted, free))
local queued = math.max(0, math.min(wanted - granted, ARGV[8] - waiting))
if granted > 0 then since = now end
if used + granted + queued == 0 then redis.call('HDEL', KEYS[1], ARGV[1])
else
  local mine = string.format('%d %d %d %d', used + granted, queued, since, now + ARGV[6])
  redis.call('HSET', KEYS[1], ARGV[1], mine)
  redis.call('PEXPIRE', KEYS[1], ARGV[7])
end
return {used + granted, running, waiting, left > granted and first[1] or ''}
"""
"""Arguments: this replica, the limit, the used slots, the wanted slots, three times in milliseconds (lease, wait, and
expiry of the hash), and the maximum queue. Calls beyond the queue are not recorded. Returns the slots for this replica,
the used slots and waiting calls of other replicas, and the replica that can use a free slot.
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
    """Semaphores by the name of their limit. This replica keeps its slots until the `async with` block ends."""

    def __init__(self, store: RedisConnection, mailbox: Mailbox) -> None:
        self._store: Final = store
        self._mailbox: Final = mailbox
        self._replica: Final = mailbox.replica
        # Keys of one script must be in one slot (Redis Cluster specification, "Hash tags").
        self._live_key: Final = f"{store.prefix}{{limits}}"
        self._waiting: Final[dict[str, Callable[[], None]]] = {}
        """Callbacks of unfulfilled claims, by the limit's key."""
        self._tasks: Final = BackgroundTasks()
        self._callbacks: Final[list[Callable[[], None]]] = []
        mailbox.on(_FREED, self._freed)
        store.on_return(self._report_loss)

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

    async def claim(  # noqa: PLR0913 - the facts of a claim
        self, name: str, *, limit: int, queue: int, used: int, wanted: int, again: Callable[[], None]
    ) -> tuple[int, int, int]:
        """Report the used slots and claim `wanted` more slots. `again` is called when another replica frees slots.

        At most `queue` calls wait at all replicas together. Return the number of slots that this replica can use, and
        the numbers of running and waiting calls at other replicas.
        """
        times = (LEASE_SECONDS * 1000, _WAIT_SECONDS * 1000, _KEPT_SECONDS * 1000)
        key = f"{self._live_key}:{name}"
        values = (self._replica, limit, used, wanted, *times, queue)
        capacity, running, waiting, first = await self._store.attempt(_CLAIM, [key, self._live_key], *values)
        if capacity < used + wanted:
            self._waiting[key] = again
        else:
            self._waiting.pop(key, None)
        if first:
            # Notify the replica that has waited longest, which would otherwise claim much later.
            self._tasks.begin(self._tell_freed(first.decode(), key), name="limit: freed")
        return capacity, running, waiting

    def on_loss(self, callback: Callable[[], None]) -> None:
        """Register a callback for the case that the store could have lost the slots of this replica."""
        self._callbacks.append(callback)

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
                await self._report_loss()

    async def _tell_freed(self, replica: str, key: str) -> None:
        with suppress(StoreUnavailableError):
            await self._mailbox.tell(replica, _FREED, key.encode())

    async def _freed(self, body: bytes) -> bytes:
        if (again := self._waiting.pop(body.decode(), None)) is not None:
            again()
        return b""

    async def _report_loss(self) -> None:
        for callback in self._callbacks:
            callback()
