"""Documents that are remembered over a restart, in the state database: bytes by name, with their digest."""

import hashlib
import time
from collections.abc import Callable
from typing import Final

from gateway.state.database import StateDatabase
from gateway.state.fallback_connection import SqliteStatement
from gateway.state.sqlite_file import Schema

DOCUMENTS: Final = Schema(
    store="documents",
    steps=(
        """CREATE TABLE documents (
            name TEXT PRIMARY KEY, digest TEXT NOT NULL, content BLOB NOT NULL, saved_at REAL NOT NULL
        ) STRICT""",
    ),
)
MAX_BYTES: Final = 64 * 2**20


class SqliteDocumentStore:
    """Implements `DocumentStore`. Names are their owners' to choose: `openapi:https://…`, `upstream:github`."""

    def __init__(self, database: StateDatabase, *, clock: Callable[[], float] = time.time) -> None:
        self._database: Final = database
        self._clock: Final = clock

    async def read(self, name: str) -> bytes | None:
        """Return a document; None for one that is not there, or is not what was saved."""
        rows = await self._database.run(
            SqliteStatement("SELECT digest, content FROM documents WHERE name = ?", (name,))
        )
        # SQLite has no checksum of its rows: a disk's fault inside of one would pass unnoticed.
        return rows[0][1] if rows and _digest(rows[0][1]) == rows[0][0] else None

    async def save(self, name: str, content: bytes) -> None:
        """Remember a document in place of an older one of that name, all of it or nothing.

        Raises:
            ValueError: it is larger than `MAX_BYTES`.
        """
        if len(content) > MAX_BYTES:
            raise ValueError(f"{len(content)} bytes are more than a remembered document may have: {MAX_BYTES}")
        row = (name, _digest(content), content, self._clock())
        await self._database.run(SqliteStatement("INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?)", row))


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
