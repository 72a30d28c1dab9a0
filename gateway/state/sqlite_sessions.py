"""The `SessionStore` of one machine, in the state directory's database."""

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from gateway.state.database import StateDatabase
from gateway.state.fallback_connection import SqliteStatement
from gateway.state.session_store import NOTHING_BEFORE, SessionRecord
from gateway.state.sqlite_file import Schema

SESSIONS: Final = Schema(
    store="sessions",
    steps=(
        """CREATE TABLE sessions (
            nonce TEXT PRIMARY KEY, expires REAL NOT NULL, is_ended INTEGER NOT NULL, record BLOB
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX sessions_expires ON sessions (expires)""",
    ),
)


class SqliteSessionStore:
    """Implements `SessionStore`."""

    is_shared = False

    def __init__(self, database: StateDatabase, *, clock: Callable[[], float]) -> None:
        self._database: Final = database
        self._clock: Final = clock

    @property
    def knows_the_past(self) -> bool:
        return self._database.is_durable and self._database.connection.put_aside is None

    async def load(self, nonce: str) -> SessionRecord | None:
        query = "SELECT record FROM sessions WHERE nonce = ? AND expires > ?"
        rows = await self._database.run(SqliteStatement(query, (nonce, self._clock())))
        try:
            return _DECODER.decode(rows[0][0]) if rows else None
        except msgspec.DecodeError:  # of a version of the gateway that is to come
            return None

    async def save(self, nonce: str, record: SessionRecord, *, before: SessionRecord | None = None) -> None:
        del before
        row = _row(nonce, record)
        await self._database.run(lambda connection: _write(connection, [row]))

    def save_soon(
        self, records: Mapping[str, SessionRecord], *, before: Mapping[str, SessionRecord] = NOTHING_BEFORE
    ) -> None:
        del before
        rows = [_row(nonce, record) for nonce, record in records.items()]
        self._database.post(lambda connection: _write(connection, rows))

    def release(self, nonce: str) -> None:
        """Nobody else serves it."""

    def forget_expired(self) -> None:
        self._database.post(SqliteStatement("DELETE FROM sessions WHERE expires <= ?", (self._clock(),)))


_DECODER: Final = msgspec.json.Decoder(SessionRecord)
_Row = tuple[str, float, int, bytes]


def _row(nonce: str, record: SessionRecord) -> _Row:
    return nonce, record.expires, int(record.is_ended), msgspec.json.encode(record)


def _write(connection: sqlite3.Connection, rows: Iterable[_Row]) -> None:
    """Write rows. An end is the last that is written of a session, in whatever order they come."""
    connection.executemany(
        """INSERT INTO sessions VALUES (?, ?, ?, ?) ON CONFLICT (nonce) DO UPDATE SET
           expires = excluded.expires, is_ended = excluded.is_ended, record = excluded.record WHERE NOT is_ended""",
        rows,
    )
