"""Opens SQLite databases with a daemon's pragmas and tables, copies their rows, and puts broken files aside. Blocking.

https://www.sqlite.org/wal.html, https://www.sqlite.org/rescode.html
"""

import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

BUSY_SECONDS: Final = 1.0
"""How long a lock of somebody else's is waited for."""
_ROWS: Final = 500
"""Rows that are copied at a time."""
_TABLES: Final = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
_VERSIONS: Final = (
    "CREATE TABLE IF NOT EXISTS schema_versions (store TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT"
)

_BROKEN: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_FAULTS: Final = _BROKEN | {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_READONLY,
}


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """The tables of a store. To change them, append a step: those that are released are never edited."""

    store: str
    """The store's name, which its tables' names begin with."""
    steps: tuple[str, ...]
    """SQL scripts; the n-th leads from version n to n + 1."""


class NewerSchemaError(Exception):
    """The file was written by a newer version of the gateway, whose tables this one does not know."""


def open_memory(schemas: Sequence[Schema]) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    _migrate(connection, schemas)
    return connection


def open_file(path: Path, schemas: Sequence[Schema]) -> sqlite3.Connection:
    """Open a file, or make one that its owner alone can read.

    Raises:
        sqlite3.Error: see `is_fault` and `is_broken`.
        NewerSchemaError: it belongs to a newer version of the gateway.
        OSError: it cannot be made.
    """
    # SQLite would make it with the umask's mode, and gives its -wal and -shm the mode of the file.
    path.touch(mode=0o600)
    # isolation_level=None: the module must not begin transactions by itself; see `FallbackConnection`.
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        _check(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # a commit survives the machine's crash, too
        # A log that grew in a burst gives its disk space back.
        connection.execute("PRAGMA journal_size_limit = 4194304")
        _migrate(connection, schemas)
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection) -> None:
    # Pages are read when they are needed: a broken one would show in the middle of somebody's request.
    if (found := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
        error = sqlite3.DatabaseError(found)
        error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_CORRUPT, "SQLITE_CORRUPT"
        raise error


def _migrate(connection: sqlite3.Connection, schemas: Iterable[Schema]) -> None:
    """Bring the tables of all stores to their newest version, in one transaction.

    Raises:
        NewerSchemaError: a store's version is above the newest one that is known.
    """
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(_VERSIONS)
    found = dict(connection.execute("SELECT store, version FROM schema_versions"))
    for schema in schemas:
        version = found.get(schema.store, 0)
        if version > len(schema.steps):
            raise NewerSchemaError(f"{schema.store} has version {version}, and {len(schema.steps)} is the newest known")
        for step in schema.steps[version:]:
            for statement in step.split(";"):  # not executescript(), which commits
                connection.execute(statement)
        if version < len(schema.steps):
            connection.execute(
                "INSERT OR REPLACE INTO schema_versions VALUES (?, ?)", (schema.store, len(schema.steps))
            )
    connection.execute("COMMIT")


def is_fault(error: BaseException) -> bool:
    """Whether an error is the fault of the file or its disk, and not of a statement."""
    return is_broken(error) or _code(error) in _FAULTS


def is_broken(error: BaseException) -> bool:
    return _code(error) in _BROKEN


def copy_rows(source: sqlite3.Connection, target: sqlite3.Connection, *, replace: bool) -> bool:
    """Copy all rows into the same tables, within the transaction that is open in the target.

    Args:
        source: has the rows.
        target: has the same tables; rows with the same primary key are replaced.
        replace: take away first what the target has.

    Returns:
        Whether all could be read. What a broken source still yields is copied.
    """
    whole = True
    for (table,) in target.execute(_TABLES).fetchall():
        if replace:
            target.execute(f'DELETE FROM "{table}"')  # noqa: S608 - the names are ours
        try:
            rows = source.execute(f'SELECT * FROM "{table}"')  # noqa: S608
            places = ", ".join("?" * len(rows.description))
            some = rows.fetchmany(_ROWS)
        except sqlite3.DatabaseError:
            whole = False
            continue
        while some:
            target.executemany(f'INSERT OR REPLACE INTO "{table}" VALUES ({places})', some)  # noqa: S608
            try:
                some = rows.fetchmany(_ROWS)
            except sqlite3.DatabaseError:
                whole, some = False, []
    return whole


def put_aside(path: Path) -> Path:
    """Rename a broken file, so that it can be looked at, and return its new path."""
    aside = path.with_name(f"{path.name}.broken-{time.time_ns()}")
    path.rename(aside)
    # A log beside another database corrupts that (https://www.sqlite.org/howtocorrupt.html).
    for suffix in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside


def _code(error: BaseException) -> int | None:
    """The primary result code: the extended ones have it in their lowest byte."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
