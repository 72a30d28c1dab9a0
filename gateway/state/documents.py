"""Documents that are remembered over a restart: bytes by name, with their digest."""

import hashlib
import sqlite3
import time
from collections.abc import Callable
from typing import Final

import msgspec

from gateway.state.database import Database, Statement
from gateway.state.schema import Schema

DOCUMENTS: Final = Schema(
    store="documents",
    steps=(
        """CREATE TABLE documents (
            name TEXT PRIMARY KEY, digest TEXT NOT NULL, content BLOB NOT NULL, saved_at REAL NOT NULL
        ) STRICT""",
    ),
)
MAX_BYTES: Final = 64 * 2**20


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A document as it was remembered."""

    content: bytes
    digest: str
    """`sha256:` and 64 hexadecimal digits, of the content."""
    saved_at: float
    """Seconds since the epoch."""


class Documents:
    """The remembered documents. Names are their owners' to choose, such as `openapi:https://…` or `upstream:github`."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database: Final = database
        self._clock: Final = clock

    async def read(self, name: str) -> Document | None:
        """Return a document; None for one that is not there, or is not what was saved."""
        return await self._database.run(lambda connection: _read(connection, name))

    async def save(self, name: str, content: bytes) -> Document:
        """Remember a document in place of an older one of that name, all of it or nothing.

        Raises:
            ValueError: it is larger than `MAX_BYTES`.
        """
        if len(content) > MAX_BYTES:
            raise ValueError(f"{len(content)} bytes are more than a remembered document may have: {MAX_BYTES}")
        document = Document(content=content, digest=digest_of(content), saved_at=self._clock())
        row = (name, document.digest, content, document.saved_at)
        await self._database.run(Statement("INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?)", row))
        return document

    async def forget(self, name: str) -> None:
        await self._database.run(Statement("DELETE FROM documents WHERE name = ?", (name,)))


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _read(connection: sqlite3.Connection, name: str) -> Document | None:
    row = connection.execute("SELECT digest, content, saved_at FROM documents WHERE name = ?", (name,)).fetchone()
    if row is None or digest_of(row[1]) != row[0]:
        return None
    return Document(content=row[1], digest=row[0], saved_at=row[2])
