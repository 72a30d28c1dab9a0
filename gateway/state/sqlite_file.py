"""Opens SQLite databases, creates tables, copies rows, and renames corrupt files. All functions block.

https://www.sqlite.org/wal.html, https://www.sqlite.org/rescode.html
"""

import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

BUSY_SECONDS: Final = 1.0
"""The maximum time to wait for another process's lock."""
_TABLES: Final = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
VERSION: Final = 1
"""The version of all tables. Increase the version and convert existing tables when a table changes."""

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


def open_memory(tables: Iterable[str]) -> sqlite3.Connection:
    # The garbage collector can close the connection in any thread.
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    _create_tables(connection, tables)
    return connection


def open_file(path: Path, tables: Iterable[str]) -> sqlite3.Connection:
    """Open a file, or create a file that only its owner can read.

    Raises:
        sqlite3.NotSupportedError: The file belongs to a newer version of the gateway.
        sqlite3.Error: The file cannot be used (see `is_broken`).
        OSError: The file cannot be created.
    """
    # Create the file here, because SQLite would use the umask. SQLite gives -wal and -shm files the mode of the file.
    path.touch(mode=0o600)
    # isolation_level=None: `FallbackConnection` starts the transactions.
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        _check(connection)
        _write_ahead(connection)
        connection.execute("PRAGMA synchronous = FULL")  # Commits survive a crash of the machine.
        # Limit the size of the log after a burst.
        connection.execute("PRAGMA journal_size_limit = 4194304")
        _create_tables(connection, tables)
    except BaseException:
        connection.close()
        raise
    return connection


def _write_ahead(connection: sqlite3.Connection) -> None:
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # SQLite does not wait if two connections change the mode of a new file at the same time.
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _check(connection: sqlite3.Connection) -> None:
    # Check now, because a corrupt page would otherwise only be noticed during a request.
    if (found := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
        error = sqlite3.DatabaseError(found)
        error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_CORRUPT, "SQLITE_CORRUPT"
        raise error


def _create_tables(connection: sqlite3.Connection, tables: Iterable[str]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise sqlite3.NotSupportedError(f"has version {version}, but the newest supported version is {VERSION}")
    for statement in ";".join(tables).split(";"):  # Not executescript(), which commits.
        connection.execute(statement)
    if version < VERSION:
        connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")


def is_fault(error: BaseException) -> bool:
    """Return whether an error was caused by the file or the disk, not by a statement."""
    return is_broken(error) or _code(error) in _FAULTS


def is_broken(error: BaseException) -> bool:
    return _code(error) in _BROKEN


def copy_rows(source: sqlite3.Connection, target: sqlite3.Connection, *, replace: bool) -> bool:
    """Copy all readable rows to the same tables of `target`, which must have an open transaction.

    With `replace`, first delete all rows of `target`. Otherwise, overwrite rows with the same primary key and keep
    others. Return whether all rows could be read.
    """
    whole = True

    def rows(table: str) -> Iterator[tuple[object, ...]]:
        nonlocal whole
        try:
            yield from source.execute(f'SELECT * FROM "{table}"')  # noqa: S608 - our own table names
        except sqlite3.DatabaseError:
            whole = False

    for (table,) in target.execute(_TABLES).fetchall():
        if replace:
            target.execute(f'DELETE FROM "{table}"')  # noqa: S608
        columns = len(target.execute(f'SELECT * FROM "{table}" LIMIT 0').description)  # noqa: S608
        places = ", ".join("?" * columns)
        target.executemany(f'INSERT OR REPLACE INTO "{table}" VALUES ({places})', rows(table))  # noqa: S608
    return whole


def put_aside(path: Path) -> Path:
    """Rename a corrupt file and return its new path."""
    aside = path.with_name(f"{path.name}.broken-{time.time_ns()}")
    path.rename(aside)
    # A stale log would corrupt a new database (https://www.sqlite.org/howtocorrupt.html).
    for suffix in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside


def _code(error: BaseException) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
