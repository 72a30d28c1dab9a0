"""Stores secrets that must survive a restart: tokens of users, registered clients and unfinished sign-ins.

Values are encrypted with AES-GCM and stored in the state database or, with several replicas, in Redis. The key is
derived from the signing keys. Values encrypted with another key count as missing.
"""

import hashlib
import hmac
import os
from collections.abc import Callable
from typing import Any, Final

from gateway.state.database import StateDatabase
from gateway.state.fallback_connection import SqliteStatement
from gateway.state.keys import SigningKeys
from gateway.state.redis_connection import RedisConnection

ENCRYPTED: Final = """
CREATE TABLE IF NOT EXISTS encrypted (
    name TEXT PRIMARY KEY, content BLOB NOT NULL, expires REAL NOT NULL
) STRICT
"""
_REPLACE: Final = """
local found = redis.call('GET', KEYS[1])
if found == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'PXAT', ARGV[3])
  return 1
end
return found == ARGV[2] and 1 or 0
"""
"""Replaces a value if it has not changed, and then returns 1. A retry after a lost response also returns 1."""
_NONCE_BYTES: Final = 12
_SCAN: Final = 500


class EncryptedStore:
    """Stores encrypted bytes by name until they expire."""

    def __init__(
        self,
        database: StateDatabase,
        *,
        keys: SigningKeys,
        clock: Callable[[], float],
        shared: RedisConnection | None = None,
    ) -> None:
        self._database: Final = database
        self._keys: Final = keys
        self._clock: Final = clock
        self._shared: Final = shared
        self._prefix: Final = "" if shared is None else f"{shared.prefix}encrypted:"

    async def read(self, name: str) -> bytes | None:
        """Return the value, or None if it is missing, has expired, or was encrypted with another key."""
        return self._opened(name, await self._read(name))

    async def write(self, name: str, content: bytes, *, expires: float) -> None:
        """Write a value that expires at `expires` (Unix time)."""
        encrypted = self._encrypted(name, content)
        if self._shared is not None:
            await self._shared.command("SET", self._prefix + name, encrypted, "PXAT", int(expires * 1000))
        else:
            row = (name, encrypted, expires)
            await self._database.run(SqliteStatement("INSERT OR REPLACE INTO encrypted VALUES (?, ?, ?)", row))

    async def replace(self, name: str, before: bytes, after: bytes, *, expires: float) -> bool:
        """Write `after` if the value is still `before`. Otherwise return False."""
        found = await self._read(name)
        if found is None or self._opened(name, found) != before:
            return False
        encrypted = self._encrypted(name, after)
        if self._shared is not None:
            return bool(await self._shared.run(_REPLACE, [self._prefix + name], found, encrypted, int(expires * 1000)))
        query = "UPDATE encrypted SET content = ?, expires = ? WHERE name = ? AND content = ? RETURNING name"
        return bool(await self._database.run(SqliteStatement(query, (encrypted, expires, name, found))))

    async def claim(self, name: str, *, expires: float) -> bool:
        """Create an entry without a value. Return False if the name already has an entry."""
        if self._shared is not None:
            return await self._shared.claim(self._prefix + name, seconds=expires - self._clock())
        await self._database.run(SqliteStatement("DELETE FROM encrypted WHERE expires <= ?", (self._clock(),)))
        query = "INSERT OR IGNORE INTO encrypted VALUES (?, x'', ?) RETURNING name"
        return bool(await self._database.run(SqliteStatement(query, (name, expires))))

    async def delete(self, name: str) -> bytes | None:
        """Delete an entry and return its value, or None in the same cases as `read`."""
        if self._shared is not None:
            return self._opened(name, await self._shared.command("GETDEL", self._prefix + name))
        query = "DELETE FROM encrypted WHERE name = ? RETURNING content"
        rows = await self._database.run(SqliteStatement(query, (name,)))
        return self._opened(name, rows[0][0] if rows else None)

    async def names(self, prefix: str) -> list[str]:
        """Return all names that start with `prefix`, which must consist of letters, digits and colons."""
        if self._shared is None:
            query = "SELECT name FROM encrypted WHERE name GLOB ? AND expires > ? ORDER BY name"
            rows = await self._database.run(SqliteStatement(query, (f"{prefix}*", self._clock())))
            return [row[0] for row in rows]
        found: set[str] = set()
        cursor: Any = b"0"
        while True:
            pattern = f"{self._prefix}{prefix}*"
            cursor, keys = await self._shared.command("SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN)
            found.update(key.decode().removeprefix(self._prefix) for key in keys)
            if int(cursor) == 0:
                return sorted(found)

    def _encrypted(self, name: str, content: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        # The name is authenticated, so that a value cannot be moved to another name.
        encrypted: bytes = _cipher(self._keys()[0]).encrypt(nonce, content, name.encode())
        return nonce + encrypted

    async def _read(self, name: str) -> bytes | None:
        if self._shared is not None:
            encrypted: bytes | None = await self._shared.command("GET", self._prefix + name)
            return encrypted
        query = "SELECT content FROM encrypted WHERE name = ? AND expires > ?"
        rows = await self._database.run(SqliteStatement(query, (name, self._clock())))
        return rows[0][0] if rows else None

    def _opened(self, name: str, encrypted: bytes | None) -> bytes | None:
        if encrypted is None:
            return None
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - of the extra

        for key in self._keys():
            try:
                opened = _cipher(key).decrypt(encrypted[:_NONCE_BYTES], encrypted[_NONCE_BYTES:], name.encode())
            except (InvalidTag, ValueError):
                continue
            return bytes(opened)
        return None


def _cipher(key: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - of the extra

    # RFC 5869 §2.2: a separate key for each purpose.
    return AESGCM(hmac.new(key, b"encrypted store", hashlib.sha256).digest())
