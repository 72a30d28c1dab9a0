"""Remembers used request states and DPoP proofs until they expire, because each state or proof is valid only once.

Used states are kept in memory, and written to the database (if any) in the background, so that a state cannot be reused
after a restart. With replicas, a state must also be unused in the shared store.
"""

import time
from collections.abc import Callable
from typing import Final

from gateway.bounded_map import BoundedMap
from gateway.state.database import StateDatabase
from gateway.state.fallback_connection import SqliteStatement
from gateway.state.redis_connection import RedisConnection

USED_STATES: Final = """
CREATE TABLE IF NOT EXISTS used_states (
    nonce TEXT PRIMARY KEY, expires REAL NOT NULL
) STRICT, WITHOUT ROWID
"""
MAX_USED: Final = 100_000
_USES_PER_SWEEP: Final = 1000


class UsedStates:
    def __init__(
        self,
        database: StateDatabase | None = None,
        *,
        clock: Callable[[], float] = time.time,
        shared: RedisConnection | None = None,
    ) -> None:
        self._database: Final = database
        self.clock: Final = clock
        self._used: Final[BoundedMap[str, str]] = BoundedMap(MAX_USED, clock=clock)
        self._uses = 0
        self.shared: Final = shared

    async def load(self) -> None:
        if self._database is None:
            return
        now = self.clock()
        query = "SELECT nonce, expires FROM used_states WHERE expires > ? ORDER BY expires DESC LIMIT ?"
        for nonce, expires in await self._database.run(SqliteStatement(query, (now, MAX_USED))):
            self._used.put(nonce, nonce, expires=expires)

    async def use(self, nonce: str, *, expires: float) -> bool:
        """Mark a state as used. Return False if the state was used before."""
        # Without a shared store, no await is between the check and the mark, so two requests cannot both pass.
        if self._used.get(nonce) is not None:
            return False
        if self.shared is not None and not await self.shared.claim(
            f"{self.shared.prefix}used:{nonce}", seconds=expires - self.clock()
        ):
            return False
        self._used.put(nonce, nonce, expires=expires)
        if self._database is not None:
            self._database.post(SqliteStatement("INSERT OR IGNORE INTO used_states VALUES (?, ?)", (nonce, expires)))
            self._uses += 1
            if self._uses % _USES_PER_SWEEP == 0:
                self._database.post(SqliteStatement("DELETE FROM used_states WHERE expires <= ?", (self.clock(),)))
        return True
