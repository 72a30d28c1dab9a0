"""Stores tasks for several replicas in Redis.

Each task is stored as a hash. Sorted sets contain the creation, expiry and lease times of all tasks. A replica renews
the leases of its tasks, and other replicas take over tasks with expired leases. A write succeeds only if the previous
version is stored, so a replica cannot store a result after another replica has taken over the task.

The hash also contains a field `@name` for each replica to notify of changes. All keys share a slot of a Redis Cluster.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec
import structlog

from gateway.errors import NotStoredError, StoreUnavailableError
from gateway.state.replica import Replica
from gateway.tasks.store import readable
from gateway.tasks.task import Task, TaskStatus, encode_task, read_task

log: Final = structlog.get_logger(__name__)

LEASE_SECONDS: Final = 15.0
_CHANGED: Final = "task changed"
_BATCH: Final = 20
_SLACK_MS: Final = 3_600_000
"""Redis deletes the key of a task this long after the task expires."""

# The scripts use the clock of Redis, because the clocks of replicas may differ.
_COMMON: Final = """
local function now() local t = redis.call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000) end
local function lease(id, status, runner, length)
  if status ~= 'working' then redis.call('ZREM', KEYS[3], id)
  elseif runner == '' then redis.call('ZADD', KEYS[3], 0, id)
  else redis.call('ZADD', KEYS[3], now() + length, id) end
end
local function watchers(key)
  local found = {}
  for _, field in ipairs(redis.call('HKEYS', key)) do
    if string.sub(field, 1, 1) == '@' then found[#found + 1] = string.sub(field, 2) end
  end
  return found
end
"""
"""Lua functions for all scripts. KEYS: creation times, expiry times, leases, counts by status, and the task."""
_ADD: Final = (
    _COMMON
    + """
local id, status, runner = ARGV[1], ARGV[2], ARGV[3]
if redis.call('EXISTS', KEYS[5]) == 1 then return 0 end
redis.call('HSET', KEYS[5], 'r', ARGV[4], 'v', ARGV[5], 's', status, 'w', runner, ARGV[6], '')
redis.call('PEXPIRE', KEYS[5], ARGV[9])
redis.call('ZADD', KEYS[1], ARGV[7], id)
redis.call('ZADD', KEYS[2], ARGV[8], id)
redis.call('HINCRBY', KEYS[4], status, 1)
lease(id, status, runner, ARGV[10])
return 1
"""
)
# A script may run twice if the connection breaks, so a write that finds its own result succeeds.
_REPLACE: Final = (
    _COMMON
    + """
local id, status, runner, version = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[5])
local found = redis.call('HMGET', KEYS[5], 'v', 's', 'r')
if not found[1] then return nil end
if tonumber(found[1]) == version and found[3] == ARGV[4] then
  return {watchers(KEYS[5]), redis.call("HGETALL", KEYS[4])}
end
if tonumber(found[1]) ~= version - 1 then return nil end
redis.call('HSET', KEYS[5], 'r', ARGV[4], 'v', version, 's', status, 'w', runner, ARGV[7], '')
redis.call('HDEL', KEYS[5], 'm')
redis.call('HINCRBY', KEYS[4], found[2], -1)
redis.call('HINCRBY', KEYS[4], status, 1)
lease(id, status, runner, ARGV[6])
return {watchers(KEYS[5]), redis.call("HGETALL", KEYS[4])}
"""
)
_REMOVE: Final = """
local status = redis.call('HGET', KEYS[5], 's')
redis.call('DEL', KEYS[5])
for at = 1, 3 do redis.call('ZREM', KEYS[at], ARGV[1]) end
if status then redis.call('HINCRBY', KEYS[4], status, -1) end
return redis.call('HGETALL', KEYS[4])
"""
_RENEW: Final = (
    _COMMON
    + """
local lost = {}
for at = 4, #ARGV, 2 do
  local key = ARGV[3] .. ARGV[at]
  local found = redis.call('HMGET', key, 's', 'w')
  if found[1] == 'working' and found[2] == ARGV[1] then
    redis.call('ZADD', KEYS[3], now() + ARGV[2], ARGV[at])
    if ARGV[at + 1] ~= '' then redis.call('HSET', key, 'm', ARGV[at + 1]) end
  else lost[#lost + 1] = ARGV[at] end
end
return {lost, redis.call("HGETALL", KEYS[4])}
"""
)
_CLAIM: Final = (
    _COMMON
    + """
local found = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now(), 'LIMIT', 0, ARGV[2])) do
  local record = redis.call('HGET', ARGV[3] .. id, 'r')
  if record then
    redis.call('ZADD', KEYS[3], now() + ARGV[1], id)
    found[#found + 1] = record
  else redis.call('ZREM', KEYS[3], id) end
end
return found
"""
)
# HSET would recreate the key of a removed task.
_WATCH: Final = "if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('HSET', KEYS[1], ARGV[1], '') end"
_EXPIRE: Final = (
    _COMMON
    + """
local gone = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])) do
  local key = ARGV[3] .. id
  local status = redis.call('HGET', key, 's')
  if status then redis.call('HINCRBY', KEYS[4], status, -1) end
  gone[#gone + 1] = {id, watchers(key)}
  redis.call('DEL', key)
  for at = 1, 3 do redis.call('ZREM', KEYS[at], id) end
end
return {gone, redis.call("HGETALL", KEYS[4])}
"""
)


class RedisTaskStore:
    """Implements `TaskStore` for several processes that share a Redis store."""

    def __init__(self, replica: Replica, *, clock: Callable[[], float]) -> None:
        self.process: Final = replica.name
        self._replica: Final = replica
        self._store: Final = replica.store
        self._clock: Final = clock
        self._own: Final = f"@{replica.name}"
        begin = f"{replica.store.prefix}{{tasks}}:"
        self._task: Final = f"{begin}task:"
        self._keys: Final = [f"{begin}{name}" for name in ("made", "expiry", "leases", "counts")]
        self._counts: Counter[str] = Counter()
        self.lease_seconds: Final = LEASE_SECONDS

    async def open(self) -> None:
        pass

    def on_change(self, callback: Callable[[str], Awaitable[None]]) -> None:

        async def changed(body: bytes) -> bytes:
            await callback(body.decode())
            return b""

        self._replica.mailbox.on(_CHANGED, changed)

    async def add(self, task: Task) -> None:
        now = self._clock()
        # The key outlives the task, so that `expire` can notify the watchers.
        left = max(1, round((task.expires - now) * 1000)) + _SLACK_MS
        values = (self._own, task.created, task.expires, left, int(LEASE_SECONDS * 1000))
        try:
            await self._store.run(_ADD, self._of(task.id), *self._values(task), *values)
        except StoreUnavailableError as error:
            raise NotStoredError(error.message) from error
        self._counts[task.status] += 1

    async def get(self, task_id: str) -> Task | None:
        found = await self._store.command("HMGET", f"{self._task}{task_id}", "r", "m")
        if found[0] is None:
            return None
        task = read_task(found[0])
        if task is None or task.expires <= self._clock():
            return None
        if found[1] is None or task.status is not TaskStatus.WORKING:
            return task
        message, updated = _MESSAGES.decode(found[1])
        return msgspec.structs.replace(task, message=message, updated=updated)

    async def replace(self, task: Task) -> bool:
        found = await self._store.run(
            _REPLACE, self._of(task.id), *self._values(task), int(LEASE_SECONDS * 1000), self._own
        )
        if found is None:
            return False
        watchers, counts = found
        self._count(counts)
        await self._tell(task.id, watchers)
        return True

    async def remove(self, task_id: str) -> None:
        self._count(await self._store.run(_REMOVE, self._of(task_id), task_id))

    async def watch(self, task_id: str) -> None:
        await self._store.run(_WATCH, [f"{self._task}{task_id}"], self._own)

    async def unfinished(self) -> Sequence[Task]:
        """Return nothing, because `claim` returns the tasks of dead replicas."""
        return []

    async def newest(self, count: int) -> Sequence[Task]:
        ids = await self._store.command("ZREVRANGE", self._keys[0], 0, count - 1)
        found = [await self.get(each.decode()) for each in ids]
        return [task for task in found if task is not None]

    async def expire(self, now: float) -> Sequence[str]:
        gone, counts = await self._store.run(_EXPIRE, self._keys, now, _BATCH, self._task)
        self._count(counts)
        for task_id, watchers in gone:
            await self._tell(task_id.decode(), watchers)
        return [task_id.decode() for task_id, _ in gone]

    async def renew(self, runner: str, messages: Mapping[str, tuple[str, float] | None]) -> Sequence[str]:
        """Renew leases and store progress messages. Return the ids of tasks that ended or belong to another process."""
        values = [
            part
            for task_id, message in messages.items()
            for part in (task_id, b"" if message is None else msgspec.msgpack.encode(message))
        ]
        lost, counts = await self._store.run(_RENEW, self._keys, runner, int(LEASE_SECONDS * 1000), self._task, *values)
        self._count(counts)
        return [each.decode() for each in lost]

    async def claim(self) -> Sequence[Task]:
        return readable(await self._store.run(_CLAIM, self._keys, int(LEASE_SECONDS * 1000), _BATCH, self._task))

    @property
    def problem(self) -> str:
        return self._store.problem

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of tasks of all replicas by status. The numbers can be a few seconds old."""
        return self._counts

    def _count(self, found: Sequence[bytes]) -> None:
        # Scripts return HGETALL as a flat list, even in RESP3.
        pairs = zip(found[::2], found[1::2], strict=True)
        self._counts = Counter({status.decode(): int(count) for status, count in pairs})

    async def _tell(self, task_id: str, watchers: Sequence[bytes]) -> None:
        for watcher in watchers:
            if watcher.decode() != self._replica.name:
                await self._replica.mailbox.tell(watcher.decode(), _CHANGED, task_id.encode())

    def _of(self, task_id: str) -> list[str]:
        return [*self._keys, f"{self._task}{task_id}"]

    @staticmethod
    def _values(task: Task) -> tuple[str | bytes | int, ...]:
        return task.id, task.status.value, task.runner, encode_task(task), task.version


_MESSAGES: Final = msgspec.msgpack.Decoder(tuple[str, float])
