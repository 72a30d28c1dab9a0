"""The connections of databases: SQLAlchemy makes and keeps them, and each dialect has a kind of session of its own."""

from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote

from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.util.concurrency import greenlet_spawn

from gateway.executors.sql.other_databases import OtherSession
from gateway.executors.sql.pools import DatabaseProfile
from gateway.executors.sql.postgresql import PostgresqlSession
from gateway.executors.sql.postgresql_values import exchange_times_exactly
from gateway.executors.sql.sessions import Session
from gateway.executors.sql.sqlite import SqliteSession, secure

_PREPARED: Final = "mcp-gateway prepared statements"
_LOCK_SECONDS: Final = 0.25
"""Seconds that SQLite itself waits for a lock; the executor tries again after that."""

_OWN_TRANSACTIONS: Final[dict[str, Any]] = {"isolation_level": "AUTOCOMMIT", "pool_reset_on_return": None}
"""The options of engines whose sessions begin and end their transactions themselves."""


def make_engine(profile: DatabaseProfile, *, read_only: bool) -> AsyncEngine:
    """Make the engine of a profile, which has no connection yet."""
    match profile.dialect:
        case "sqlite":
            # As a URI, which alone can say the mode; quoted, because a `?` in the path would begin its parameters.
            mode = {"mode": "ro" if read_only else "rwc", "uri": "true"}
            url = URL.create("sqlite+aiosqlite", database=f"file:{quote(profile.url)}", query=mode)
            return _engine(url, profile, connect_args={"timeout": _LOCK_SECONDS}, **_OWN_TRANSACTIONS)
        case "postgresql":
            settings = {"application_name": "mcp-gateway"}
            return _engine(profile.url, profile, connect_args={"server_settings": settings}, **_OWN_TRANSACTIONS)
        case _:
            return _engine(profile.url, profile)


def _engine(url: Any, profile: DatabaseProfile, **options: Any) -> AsyncEngine:
    return create_async_engine(
        url,
        pool_size=profile.size,
        # `pool` of the file is a promise to the database: no connection is opened beyond it.
        max_overflow=0,
        pool_timeout=86_400,  # a call's deadline comes first
        # SQLAlchemy's messages would otherwise quote the values of a call.
        hide_parameters=True,
        **options,
    )


@asynccontextmanager
async def open_session(engine: AsyncEngine, dialect: str, *, read_only: bool) -> AsyncIterator[Session]:
    """Borrow a connection of the engine, for as long as the context lasts; it goes back if it is still good."""
    if dialect not in {"sqlite", "postgresql"}:
        async with engine.connect() as connection:
            yield OtherSession(connection)
        return
    # The driver's own connection: its cursors and its ways to stop a statement are not SQLAlchemy's.
    raw: Any = await engine.raw_connection()
    while dialect == "postgresql" and raw.driver_connection.is_closed():  # it was lost while it was idle
        raw.invalidate()
        # The pool's code is synchronous, and waits for an asyncio driver within a greenlet only.
        await greenlet_spawn(raw.close)
        raw = await engine.raw_connection()
    session: Session | None = None
    try:
        if dialect == "postgresql":
            if _PREPARED not in raw.info:
                await exchange_times_exactly(raw.driver_connection)
                raw.info[_PREPARED] = OrderedDict()
            session = PostgresqlSession(raw.driver_connection, raw.info[_PREPARED], read_only=read_only)
        else:
            # `info` lasts as long as the connection, which many calls borrow.
            if not raw.info.get("secured"):
                await secure(raw.driver_connection, read_only=read_only)
                raw.info["secured"] = True
            session = SqliteSession(raw.driver_connection, read_only=read_only)
        yield session
    finally:
        if session is None or not session.is_usable:
            raw.invalidate()
        await greenlet_spawn(raw.close)
