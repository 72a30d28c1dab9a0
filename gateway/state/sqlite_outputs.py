"""Stores the outputs of tasks in the state database, so that they outlive the process as the tasks do."""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from gateway.state.database import StateDatabase
from gateway.state.fallback_connection import SqliteStatement
from gateway.state.sqlite_file import Schema

OUTPUTS: Final = Schema(
    store="outputs",
    steps=(
        """CREATE TABLE outputs (
            uri TEXT PRIMARY KEY, caller TEXT NOT NULL, media_type TEXT NOT NULL, expires REAL NOT NULL,
            contents ANY NOT NULL
        ) STRICT""",
    ),
)


class SqliteOutputs:
    """Implements `OutputArchive`."""

    def __init__(self, database: StateDatabase) -> None:
        """Write nothing yet. To be made in the event loop."""
        self._database: Final = database
        self._loop: Final = asyncio.get_running_loop()
        self._loop_thread: Final = threading.get_ident()

    async def list(self, now: float) -> Sequence[tuple[str, str, str, float, int]]:
        await self._database.run(SqliteStatement("DELETE FROM outputs WHERE expires <= ?", (now,)))
        # CAST: length() of text counts characters.
        query = "SELECT uri, caller, media_type, expires, length(CAST(contents AS BLOB)) FROM outputs ORDER BY rowid"
        return await self._database.run(SqliteStatement(query))

    async def read(self, uri: str) -> str | bytes | None:
        rows = await self._database.run(SqliteStatement("SELECT contents FROM outputs WHERE uri = ?", (uri,)))
        return rows[0][0] if rows else None

    def save(self, uri: str, contents: str | bytes, *, caller: str, media_type: str, expires: float) -> None:
        # In memory the rows would be a second copy that is worth nothing.
        if self._database.is_durable:
            row = (uri, caller, media_type, expires, contents)
            self._post(SqliteStatement("INSERT INTO outputs VALUES (?, ?, ?, ?, ?)", row))

    def remove(self, uri: str) -> None:
        self._post(SqliteStatement("DELETE FROM outputs WHERE uri = ?", (uri,)))

    def _post(self, statement: SqliteStatement) -> None:
        if threading.get_ident() == self._loop_thread:
            self._write(statement)
        else:  # a worker thread that shapes a large output
            self._loop.call_soon_threadsafe(self._write, statement)

    def _write(self, statement: SqliteStatement) -> None:
        with suppress(RuntimeError):  # closed: a thread has ended after the daemon's work had
            self._database.post(statement)
