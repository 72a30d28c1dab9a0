"""The `SessionStore` that replicas share: a Redis hash per session, with a field for each value that can change.

With separate fields, two replicas can change a session at the same time. The hash also lists the replicas that use the
session (`@name`), which are notified of changes.

While Redis is unavailable, writes are queued (`save`), and replicas use the sessions that they have in memory.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

import msgspec
import structlog

from gateway.background_tasks import BackgroundTasks
from gateway.bounded_map import BoundedMap
from gateway.errors import StoreUnavailableError
from gateway.state.mailbox import Mailbox
from gateway.state.redis_connection import RedisConnection
from gateway.state.session_store import SessionRecord

log: Final = structlog.get_logger(__name__)

CHANGED: Final = "session changed"
MAX_QUEUED: Final = 100_000
_NOTIFY_SECONDS: Final = 0.5
_MAX_CONCURRENT_WRITES: Final = 50
_WRITE: Final = "session: write"

_LEVEL, _INITIALIZED, _EXPIRES, _ENDED = "l", "i", "e", "x"
_LIST, _URI, _HOLDER = "t", "+", "@"
"""First characters of field names for list fingerprints, subscribed URIs, and replicas that hold the session."""

# Read and register in one script, so that this replica is notified of all later changes.
_LOAD: Final = """
local fields = redis.call('HGETALL', KEYS[1])
redis.call('HSET', KEYS[1], ARGV[1], '')
if #fields == 0 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return fields
"""
_SAVE: Final = """
if redis.call('HEXISTS', KEYS[1], 'x') == 1 then return {} end
local holders = {}
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 1) == '@' then
    if field ~= ARGV[1] then holders[#holders + 1] = string.sub(field, 2) end
  elseif ARGV[4] == 'all' then redis.call('HDEL', KEYS[1], field) end
end
local had = tonumber(redis.call('HGET', KEYS[1], 'e') or '0')
local sets = tonumber(ARGV[5])
for at = 6, 5 + sets * 2, 2 do redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1]) end
for at = 6 + sets * 2, #ARGV do redis.call('HDEL', KEYS[1], ARGV[at]) end
redis.call('HSET', KEYS[1], ARGV[1], '')
if tonumber(ARGV[2]) > had then
  redis.call('HSET', KEYS[1], 'e', ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return holders
"""
"""Arguments: this replica's field, the expiry and the TTL in milliseconds, `all` to replace all fields, the number of
fields to set, these fields with values, and the fields to delete. A session that has ended is not changed. Returns the
other holders.
"""


class SessionChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change that another replica has made to a session."""

    nonce: str
    log_level: str | None = None
    is_initialized: bool = False
    added: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()
    is_ended: bool = False


class RedisSessionStore:
    is_shared = True
    has_all_records = False

    def __init__(self, store: RedisConnection, mailbox: Mailbox, *, clock: Callable[[], float]) -> None:
        self._store: Final = store
        self._mailbox: Final = mailbox
        self._clock: Final = clock
        self._own_field: Final = f"{_HOLDER}{mailbox.replica}"
        self._queued: Final[BoundedMap[str, tuple[SessionRecord, SessionRecord | None]]] = BoundedMap(
            MAX_QUEUED, clock=clock
        )
        """Maps a nonce to the queued record and the record that Redis is known to contain."""
        self._writing: Final = BackgroundTasks()
        self._permits: Final = asyncio.Semaphore(_MAX_CONCURRENT_WRITES)
        store.on_return(self._write_queued)

    async def close(self) -> None:
        # Wait for writes, because a session that just ended would otherwise stay valid at other replicas.
        await self._writing.wait()

    async def load(self, nonce: str) -> SessionRecord | None:
        """Return the record of a session, and register this replica for notifications of its changes.

        Return None if Redis is unavailable.
        """
        if self._store.is_unavailable:
            return None
        try:
            fields = await self._store.run(_LOAD, [self._key(nonce)], self._own_field, _HOLDERS_ONLY_MS)
        except StoreUnavailableError:
            return None
        # RESP2 returns a hash as a flat list of names and values.
        record = _record(dict(zip(*[iter(each.decode() for each in fields)] * 2, strict=True)))
        return None if record is None or record.expires <= self._clock() else record

    async def save(self, nonce: str, record: SessionRecord, *, before: SessionRecord | None = None) -> None:
        """Write a record, and notify other replicas that use the session. During an outage, queue the record."""
        if self._store.is_unavailable:
            return self._queue_write(nonce, record, before)
        try:
            async with self._permits:
                change = _change(nonce, record, before)
                holders = await self._store.run(_SAVE, [self._key(nonce)], *self._values(record, before, change))
                # Holders serve the session from memory, so notify them before this method returns.
                if holders and change != SessionChange(nonce=nonce):
                    body = msgspec.msgpack.encode(change)
                    await asyncio.gather(*(self._notify_holder(nonce, holder.decode(), body) for holder in holders))
        except StoreUnavailableError:
            self._queue_write(nonce, record, before)
        return None

    def save_soon(self, records: Mapping[str, SessionRecord], *, before: Mapping[str, SessionRecord]) -> None:
        for nonce, record in records.items():
            self._writing.begin(self.save(nonce, record, before=before.get(nonce)), name=_WRITE)

    def release(self, nonce: str) -> None:
        if not self._store.is_unavailable:
            self._writing.begin(self._forget(nonce, self._own_field), name=_WRITE)

    def forget_expired(self) -> None:
        """Do nothing, because Redis deletes expired keys."""

    def _key(self, nonce: str) -> str:
        return f"{self._store.prefix}session:{nonce}"

    async def _notify_holder(self, nonce: str, holder: str, body: bytes) -> None:
        # A slow holder reads the change later. A dead holder is removed.
        if await self._mailbox.ask(holder, CHANGED, body, seconds=_NOTIFY_SECONDS) is None and not (
            await self._mailbox.is_there(holder)
        ):
            await self._store.command("HDEL", self._key(nonce), f"{_HOLDER}{holder}")

    def _queue_write(self, nonce: str, record: SessionRecord, before: SessionRecord | None) -> None:
        newest, written = self._queued.get(nonce) or (None, before)
        # Keep the first `before`, which matches the record in Redis. Never overwrite a queued record of a session end.
        if newest is None or not newest.is_ended:
            self._queued.put(nonce, (record, written), expires=record.expires)

    async def tell_holders(self, nonce: str, kind: str, body: bytes) -> None:
        fields = [each.decode() for each in await self._store.command("HKEYS", self._key(nonce))]
        holders = [name[1:] for name in fields if name.startswith(_HOLDER) and name != self._own_field]
        await asyncio.gather(*(self._mailbox.tell(holder, kind, body) for holder in holders))

    async def _write_queued(self) -> None:
        begun = []
        for nonce, (record, before) in list(self._queued.items()):
            # Remove the record first, because `save` queues it again if the store is unavailable.
            self._queued.discard(nonce)
            begun.append(self._writing.begin(self.save(nonce, record, before=before), name=_WRITE))
        # Wait only for these writes, because a busy process always has other writes.
        if begun:
            await asyncio.wait(begun)

    def _values(
        self, record: SessionRecord, before: SessionRecord | None, change: SessionChange
    ) -> Iterable[str | bytes | float]:
        left = max(1, round((record.expires - self._clock()) * 1000))
        fields: dict[str, str] = {}
        removed: list[str] = []
        # The record of an ended session stays until it would have expired, so that its id stays invalid.
        if record.is_ended:
            fields, before = {_ENDED: "1"}, None
        else:
            if change.log_level is not None:
                fields[_LEVEL] = change.log_level
            if change.is_initialized:
                fields[_INITIALIZED] = "1"
            known = {} if before is None else before.lists
            fields |= {f"{_URI}{uri}": "" for uri in change.added}
            fields |= {f"{_LIST}{kind}": mark for kind, mark in record.lists.items() if known.get(kind) != mark}
            removed = [f"{_URI}{uri}" for uri in change.removed]
        pairs = [part for pair in fields.items() for part in pair]
        mode = "all" if before is None else "some"
        # Redis stores integers in half the size of their text.
        return [self._own_field, round(record.expires * 1000), left, mode, len(fields), *pairs, *removed]

    async def _forget(self, nonce: str, holder: str) -> None:
        with suppress(StoreUnavailableError):
            await self._store.command("HDEL", self._key(nonce), holder)


_HOLDERS_ONLY_MS: Final = 60_000
"""How long the hash of a session is kept if it lists holders but contains no record."""


def _record(fields: Mapping[str, str]) -> SessionRecord | None:
    if _EXPIRES not in fields:
        return None
    return SessionRecord(
        expires=int(fields[_EXPIRES]) / 1000,
        log_level=fields.get(_LEVEL),
        is_initialized=_INITIALIZED in fields,
        subscriptions=frozenset(name[1:] for name in fields if name.startswith(_URI)),
        lists={name[1:]: mark for name, mark in fields.items() if name.startswith(_LIST)},
        is_ended=_ENDED in fields,
    )


def _change(nonce: str, record: SessionRecord, before: SessionRecord | None) -> SessionChange:
    known = before or SessionRecord(expires=0)
    return SessionChange(
        nonce=nonce,
        log_level=record.log_level if record.log_level != known.log_level else None,
        is_initialized=record.is_initialized and not known.is_initialized,
        added=record.subscriptions - known.subscriptions,
        removed=known.subscriptions - record.subscriptions,
        is_ended=record.is_ended,
    )
