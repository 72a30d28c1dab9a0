"""Stores what changes of a legacy session after `initialize`, by the nonce of its id. The id carries the rest.

A record is written when it changes, and with many others when the session was used; never for a plain call.
"""

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, Protocol

import msgspec

from gateway.bounded_map import BoundedMap
from gateway.state.database import Database, Statement
from gateway.state.schema import Schema

SESSIONS: Final = Schema(
    store="sessions",
    steps=(
        """CREATE TABLE sessions (
            nonce TEXT PRIMARY KEY, expires REAL NOT NULL, is_ended INTEGER NOT NULL, record BLOB
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX sessions_expires ON sessions (expires)""",
    ),
)
MAX_IN_MEMORY: Final = 100_000


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The changeable part of a session."""

    expires: float
    """Seconds since the epoch at which it ends, unless it is used before."""
    log_level: str | None = None
    is_initialized: bool = False
    subscriptions: frozenset[str] = frozenset()
    """URIs."""
    lists: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The fingerprint of each list, by kind, as the client was told of it last."""
    is_ended: bool = False
    """Whether it was ended before its time, so that its id is good no more."""


NOTHING_BEFORE: Final[Mapping[str, SessionRecord]] = MappingProxyType({})


class SessionStore(Protocol):
    """Records by nonce, wherever they are kept. Those that have expired are forgotten.

    A store that several processes share writes the difference from the record that stood `before`: another process may
    have changed the rest. Without one it writes the whole record.
    """

    @property
    def is_shared(self) -> bool:
        """Whether other processes serve the same sessions at the same time."""

    @property
    def knows_the_past(self) -> bool:
        """Whether a session of an earlier process that has no record here has expired."""

    async def load(self, nonce: str) -> SessionRecord | None: ...

    async def save(self, nonce: str, record: SessionRecord, *, before: SessionRecord | None = None) -> None:
        """Write a record, and return when it is written. One that says that the session ended is never replaced."""

    def save_soon(
        self, records: Mapping[str, SessionRecord], *, before: Mapping[str, SessionRecord] = NOTHING_BEFORE
    ) -> None:
        """Write records, and wait for nothing."""

    def let_go(self, nonce: str) -> None:
        """Note that this process serves a session no more, which others may."""

    def forget_expired(self) -> None: ...


class MemorySessionStore:
    """The `SessionStore` of one process."""

    is_shared = False
    knows_the_past = False

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._records: Final[BoundedMap[str, SessionRecord]] = BoundedMap(MAX_IN_MEMORY, clock=clock)

    async def load(self, nonce: str) -> SessionRecord | None:
        return self._records.get(nonce)

    async def save(self, nonce: str, record: SessionRecord, *, before: SessionRecord | None = None) -> None:
        del before
        self.save_soon({nonce: record})

    def save_soon(
        self, records: Mapping[str, SessionRecord], *, before: Mapping[str, SessionRecord] = NOTHING_BEFORE
    ) -> None:
        del before
        for nonce, record in records.items():
            if (known := self._records.get(nonce)) is None or not known.is_ended:
                self._records.put(nonce, record, expires=record.expires)

    def let_go(self, nonce: str) -> None:
        """Nobody else serves it."""

    def forget_expired(self) -> None:
        """Entries that have expired make room for others by themselves."""


class SqliteSessionStore:
    """The `SessionStore` of one machine, in the state directory's database."""

    is_shared = False

    def __init__(self, database: Database, *, clock: Callable[[], float]) -> None:
        self._database: Final = database
        self._clock: Final = clock

    @property
    def knows_the_past(self) -> bool:
        return self._database.is_durable and self._database.put_aside is None

    async def load(self, nonce: str) -> SessionRecord | None:
        query = "SELECT record FROM sessions WHERE nonce = ? AND expires > ?"
        rows = await self._database.run(Statement(query, (nonce, self._clock())))
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

    def let_go(self, nonce: str) -> None:
        """Nobody else serves it."""

    def forget_expired(self) -> None:
        self._database.post(Statement("DELETE FROM sessions WHERE expires <= ?", (self._clock(),)))


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
