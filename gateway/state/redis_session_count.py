"""Counts the sessions of all replicas, by caller and in all: a set of their nonces each, with when they expire.

A session counts once, however many replicas serve it, and goes on counting when the replica that opened it has died.
"""

import hashlib
from collections.abc import Callable
from enum import IntEnum
from typing import Final

from gateway.errors import StoreAwayError
from gateway.state.redis_connection import RedisConnection
from gateway.state.redis_script import Script

_COUNT: Final = Script.of("""
local now, expires, in_all, per_caller = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if ARGV[6] == 'new' and not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  if redis.call('ZCARD', KEYS[1]) >= in_all then return 1 end
  if KEYS[2] and redis.call('ZCARD', KEYS[2]) >= per_caller then
    for _, nonce in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
      if not redis.call('ZSCORE', KEYS[1], nonce) then redis.call('ZREM', KEYS[2], nonce) end
    end
    if redis.call('ZCARD', KEYS[2]) >= per_caller then return 2 end
  end
end
for _, key in ipairs(KEYS) do
  redis.call('ZADD', key, ARGV[3], ARGV[1])
  if redis.call('PTTL', key) < expires - now then redis.call('PEXPIRE', key, string.format('%d', expires - now)) end
end
return 0
""")
"""Keys: the set of all, and that of the caller if it is known. Values: the member, the time, when the session expires,
the limits, and `new` if it counts only where there is room. Times are milliseconds since the epoch."""

_MEMBER_BYTES: Final = 12


class SessionAdmission(IntEnum):
    """The answer to a new session."""

    ADMITTED = 0
    ALL_TAKEN = 1
    SHARE_TAKEN = 2


class RedisSessionCount:
    """The number of sessions, which all replicas share."""

    def __init__(self, store: RedisConnection, *, clock: Callable[[], float]) -> None:
        self._store: Final = store
        self._clock: Final = clock

    @property
    def is_away(self) -> bool:
        return self._store.is_away

    async def add(self, nonce: str, caller: str, *, expires: float, in_all: int, per_caller: int) -> SessionAdmission:
        """Count a new session, unless there is no room for it; while the store is away, each replica counts its own."""
        try:
            return SessionAdmission(await self._count(nonce, caller, expires, in_all, per_caller, "new"))
        except StoreAwayError:
            return SessionAdmission.ADMITTED

    async def keep(self, nonce: str, caller: str, *, expires: float) -> None:
        """Count a session on, which there is."""
        try:
            await self._count(nonce, caller, expires, 0, 0, "old")
        except StoreAwayError:
            return  # it is counted again when the store is back

    async def remove(self, nonce: str) -> None:
        """Count a session that has ended no longer. Its caller's set is put right when it is full."""
        try:
            await self._store.command("ZREM", self._key(""), _member(nonce))
        except StoreAwayError:
            return  # it counts until it expires

    async def _count(self, nonce: str, caller: str, expires: float, *values: str | int) -> int:  # the script's
        keys = [self._key(""), *([self._key(caller)] if caller else [])]
        now, until = round(self._clock() * 1000), round(expires * 1000)
        found: int = await self._store.attempt(_COUNT, keys, _member(nonce), now, until, *values)
        return found

    def _key(self, caller: str) -> str:
        # The hash tag puts the sets of all callers into one slot: the script writes two of them.
        return f"{self._store.prefix}{{limits}}:sessions:{caller}"


def _member(nonce: str) -> bytes:
    """Return a session's member: with its length byte and end it fills 16 bytes of the allocator, as no nonce does."""
    return hashlib.blake2b(nonce.encode(), digest_size=_MEMBER_BYTES).digest()
