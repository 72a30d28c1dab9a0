"""Stores in the state database: sessions, documents and outputs."""

import hashlib
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from gateway.state.database import StateDatabase
from gateway.state.fallback_connection import SqliteStatement
from gateway.state.session_store import SessionRecord

SESSIONS: Final = """
CREATE TABLE IF NOT EXISTS sessions (
    nonce TEXT PRIMARY KEY, expires REAL NOT NULL, is_ended INTEGER NOT NULL, record BLOB
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS sessions_expires ON sessions (expires)
"""


class SqliteSessionStore:
    is_shared = False

    def __init__(self, database: StateDatabase, *, clock: Callable[[], float]) -> None:
        self._database: Final = database
        self._clock: Final = clock

    @property
    def has_all_records(self) -> bool:
        return self._database.is_durable and self._database.connection.put_aside is None

    async def load(self, nonce: str) -> SessionRecord | None:
        query = "SELECT record FROM sessions WHERE nonce = ? AND expires > ?"
        rows = await self._database.run(SqliteStatement(query, (nonce, self._clock())))
        try:
            return _DECODER.decode(rows[0][0]) if rows else None
        except msgspec.DecodeError:  # From a newer version of the gateway.
            return None

    async def save(self, nonce: str, record: SessionRecord, *, before: SessionRecord | None = None) -> None:
        del before
        row = _row(nonce, record)
        await self._database.run(lambda connection: _write(connection, [row]))

    def save_soon(self, records: Mapping[str, SessionRecord], *, before: Mapping[str, SessionRecord]) -> None:
        del before
        rows = [_row(nonce, record) for nonce, record in records.items()]
        self._database.post(lambda connection: _write(connection, rows))

    def release(self, nonce: str) -> None:
        """Do nothing, because no other process serves the session."""

    def forget_expired(self) -> None:
        self._database.post(SqliteStatement("DELETE FROM sessions WHERE expires <= ?", (self._clock(),)))


_DECODER: Final = msgspec.json.Decoder(SessionRecord)
_Row = tuple[str, float, int, bytes]


def _row(nonce: str, record: SessionRecord) -> _Row:
    return nonce, record.expires, int(record.is_ended), msgspec.json.encode(record)


def _write(connection: sqlite3.Connection, rows: Iterable[_Row]) -> None:
    connection.executemany(
        """INSERT INTO sessions VALUES (?, ?, ?, ?) ON CONFLICT (nonce) DO UPDATE SET
           expires = excluded.expires, is_ended = excluded.is_ended, record = excluded.record WHERE NOT is_ended""",
        rows,
    )


DOCUMENTS: Final = """
CREATE TABLE IF NOT EXISTS documents (
    name TEXT PRIMARY KEY, digest TEXT NOT NULL, content BLOB NOT NULL, saved_at REAL NOT NULL
) STRICT
"""
MAX_BYTES: Final = 64 * 2**20


class SqliteDocumentStore:
    """Implements `DocumentStore`. Callers choose the names, such as `openapi:https://…` and `upstream:github`."""

    def __init__(self, database: StateDatabase, *, clock: Callable[[], float] = time.time) -> None:
        self._database: Final = database
        self._clock: Final = clock

    async def read(self, name: str) -> bytes | None:
        """Return a document, or None if it is missing or corrupt."""
        rows = await self._database.run(
            SqliteStatement("SELECT digest, content FROM documents WHERE name = ?", (name,))
        )
        # SQLite has no checksums, so a disk error within a row would go unnoticed.
        return rows[0][1] if rows and _digest(rows[0][1]) == rows[0][0] else None

    async def save(self, name: str, content: bytes) -> None:
        """Save or replace a document. Raise ValueError if the document is larger than `MAX_BYTES`."""
        if len(content) > MAX_BYTES:
            raise ValueError(f"{len(content)} bytes exceed the maximum size of a document: {MAX_BYTES}")
        row = (name, _digest(content), content, self._clock())
        await self._database.run(SqliteStatement("INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?)", row))


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


OUTPUTS: Final = """
CREATE TABLE IF NOT EXISTS outputs (
    uri TEXT PRIMARY KEY, caller TEXT NOT NULL, media_type TEXT NOT NULL, expires REAL NOT NULL,
    contents ANY NOT NULL
) STRICT
"""


class SqliteOutputs:
    """Implements the persistence of `OutputStore`. Other threads can call `save` and `remove`."""

    def __init__(self, database: StateDatabase) -> None:
        self._database: Final = database

    async def list(self, now: float) -> Sequence[tuple[str, str, str, float, int]]:
        await self._database.run(SqliteStatement("DELETE FROM outputs WHERE expires <= ?", (now,)))
        # CAST is needed because length() of text counts characters.
        query = "SELECT uri, caller, media_type, expires, length(CAST(contents AS BLOB)) FROM outputs ORDER BY rowid"
        return await self._database.run(SqliteStatement(query))

    async def read(self, uri: str) -> str | bytes | None:
        rows = await self._database.run(SqliteStatement("SELECT contents FROM outputs WHERE uri = ?", (uri,)))
        return rows[0][0] if rows else None

    def save(self, uri: str, contents: str | bytes, *, caller: str, media_type: str, expires: float) -> None:
        if self._database.is_durable:
            row = (uri, caller, media_type, expires, contents)
            self._post(SqliteStatement("INSERT INTO outputs VALUES (?, ?, ?, ?, ?)", row))

    def remove(self, uri: str) -> None:
        self._post(SqliteStatement("DELETE FROM outputs WHERE uri = ?", (uri,)))

    def _post(self, statement: SqliteStatement) -> None:
        # Skip a database in memory, where the rows would be a useless copy.
        if self._database.connection.path is not None:
            with suppress(RuntimeError):  # The database was closed before the thread ended.
                self._database.post(statement)
