"""The connections of databases: SQLAlchemy makes and keeps them, and each dialect has a kind of session of its own."""

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from gateway.executors.sql.other_databases import OtherSession
from gateway.executors.sql.pools import DatabaseProfile
from gateway.executors.sql.postgresql import PostgresqlSession
from gateway.executors.sql.sessions import Session
from gateway.executors.sql.sqlite import SqliteSession, secure

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

_PREPARED: Final = "mcp-gateway prepared statements"
_LOCK_SECONDS: Final = 0.25
"""Seconds that SQLite itself waits for a lock; the executor tries again after that."""

_OWN_TRANSACTIONS: Final[dict[str, Any]] = {"isolation_level": "AUTOCOMMIT", "pool_reset_on_return": None}
"""The options of engines whose sessions begin and end their transactions themselves."""


def make_engine(profile: DatabaseProfile, *, read_only: bool) -> "AsyncEngine":
    """Make the engine of a profile, which has no connection yet."""
    return _ENGINES.get(profile.dialect, _other_engine)(profile, read_only)


def open_session(engine: "AsyncEngine", dialect: str, *, read_only: bool) -> AbstractAsyncContextManager[Session]:
    """Borrow a connection of the engine, for as long as the context lasts."""
    return _SESSIONS.get(dialect, _other_session)(engine, read_only)


def _engine(url: Any, profile: DatabaseProfile, **options: Any) -> "AsyncEngine":
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415 - of the extra

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


def _sqlite_engine(profile: DatabaseProfile, read_only: bool) -> "AsyncEngine":  # noqa: FBT001 - of the table
    from sqlalchemy import URL  # noqa: PLC0415 - of the extra

    mode = "ro" if read_only else "rwc"
    return _engine(
        # As a URI, which alone can say the mode; quoted, because a `?` in the path would begin its parameters.
        URL.create("sqlite+aiosqlite", database=f"file:{quote(profile.url)}", query={"mode": mode, "uri": "true"}),
        profile,
        connect_args={"timeout": _LOCK_SECONDS},
        **_OWN_TRANSACTIONS,
    )


def _postgresql_engine(profile: DatabaseProfile, _read_only: bool) -> "AsyncEngine":  # noqa: FBT001 - of the table
    return _engine(
        profile.url, profile, connect_args={"server_settings": {"application_name": "mcp-gateway"}}, **_OWN_TRANSACTIONS
    )


def _other_engine(profile: DatabaseProfile, _read_only: bool) -> "AsyncEngine":  # noqa: FBT001 - of the table
    return _engine(profile.url, profile)


@asynccontextmanager
async def _borrowed(
    engine: "AsyncEngine", make: Any, *, is_closed: Callable[[Any], bool] = lambda _: False
) -> AsyncIterator[Session]:
    """A session with a connection of the driver's own, which goes back to the pool if it is still good."""
    from sqlalchemy.util.concurrency import greenlet_spawn  # noqa: PLC0415 - of the extra

    raw = await engine.raw_connection()
    while is_closed(raw.driver_connection):  # it was lost while it was idle
        raw.invalidate()
        # The pool's code is synchronous, and waits for an asyncio driver within a greenlet only.
        await greenlet_spawn(raw.close)
        raw = await engine.raw_connection()
    session: Session | None = None
    try:
        session = await make(raw)
        yield session
    finally:
        if session is None or not session.is_usable:
            raw.invalidate()
        await greenlet_spawn(raw.close)


@asynccontextmanager
async def _sqlite_session(engine: "AsyncEngine", read_only: bool) -> AsyncIterator[Session]:  # noqa: FBT001 - of the table
    async def make(raw: Any) -> Session:
        connection = raw.driver_connection
        # `info` lasts as long as the connection, which many calls borrow.
        if not raw.info.get("secured"):
            await secure(connection, read_only=read_only)
            raw.info["secured"] = True
        return SqliteSession(connection, read_only=read_only)

    async with _borrowed(engine, make) as session:
        yield session


@asynccontextmanager
async def _postgresql_session(engine: "AsyncEngine", read_only: bool) -> AsyncIterator[Session]:  # noqa: FBT001 - of the table
    async def make(raw: Any) -> Session:
        prepared = raw.info.setdefault(_PREPARED, OrderedDict())
        return PostgresqlSession(raw.driver_connection, prepared, read_only=read_only)

    async with _borrowed(engine, make, is_closed=lambda connection: connection.is_closed()) as session:
        yield session


@asynccontextmanager
async def _other_session(engine: "AsyncEngine", _read_only: bool) -> AsyncIterator[Session]:  # noqa: FBT001 - of the table
    async with engine.connect() as connection:
        yield OtherSession(connection)


_ENGINES: Final = {"sqlite": _sqlite_engine, "postgresql": _postgresql_engine}
_SESSIONS: Final = {"sqlite": _sqlite_session, "postgresql": _postgresql_session}
