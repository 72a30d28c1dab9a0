"""Rate limits that replicas share. A hash per rate and caller contains the number of calls by time.

The times come from Redis, because the clocks of replicas can differ. All hashes of a limit share a Cluster slot.
"""

from collections.abc import Sequence
from typing import Final

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
"""Arguments: the cost, the maximum number of times in a hash, and the amount and milliseconds of each rate. Returns the
number of the exceeded rate and the milliseconds until this rate allows the calls, or zeros if the calls were counted.
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
        """Count calls against rates (amount, seconds). If a rate is exceeded, return its index and the wait in seconds.

        `resolution` limits the number of stored times. Amounts up to `resolution` are counted exactly.
        """
        values = [value for amount, seconds in rates for value in (amount, seconds * 1000)]
        number, wait = await self._store.attempt(_TAKE, self._keys(name, callers), cost, resolution, *values)
        return None if number == 0 else (number - 1, wait / 1000)

    async def refund(self, name: str, callers: Sequence[str]) -> None:
        """Remove one call that `take` has counted."""
        await self._store.attempt(_REFUND, self._keys(name, callers))

    def _keys(self, name: str, callers: Sequence[str]) -> list[str]:
        return [f"{self._store.prefix}rate:{{{name}}}:{caller}" for caller in callers]
