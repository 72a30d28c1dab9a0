"""Database connections. SQLAlchemy pools them. Some dialects have special engines and sessions."""

from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote

from sqlalchemy import URL, Connection, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.util.concurrency import greenlet_spawn

from gateway.errors import ExecutionError
from gateway.executors.sql.pools import DatabaseProfile
from gateway.executors.sql.postgresql import PostgresqlSession, exchange_times_exactly
from gateway.executors.sql.query import BoundStatement
from gateway.executors.sql.rows import RowCollector
from gateway.executors.sql.sessions import DatabaseConnectionLostError, Session, StatementRefusedError
from gateway.executors.sql.sqlite import SqliteSession, secure

_PREPARED: Final = "mcp-gateway prepared statements"
_SECURED: Final = "mcp-gateway secured"
_LOCK_SECONDS: Final = 0.25
"""The time that SQLite waits for a lock. The executor retries afterwards."""
_OWN_TRANSACTIONS: Final[Mapping[str, Any]] = {"isolation_level": "AUTOCOMMIT", "pool_reset_on_return": None}
"""For engines whose sessions control their transactions."""


def make_engine(profile: DatabaseProfile, *, read_only: bool) -> AsyncEngine:
    url: URL | str = profile.url
    options: dict[str, Any] = {}
    if (engine_options := _ENGINES.get(profile.dialect)) is not None:
        url, arguments = engine_options(profile, read_only)
        options = {"connect_args": arguments, **_OWN_TRANSACTIONS}
    return create_async_engine(
        url,
        pool_size=profile.size,
        max_overflow=0,  # `pool` is the limit
        pool_timeout=86_400,  # a call's deadline comes first
        hide_parameters=True,  # keeps values out of error messages
        **options,
    )


def _sqlite_engine(profile: DatabaseProfile, read_only: bool) -> tuple[URL, dict[str, Any]]:  # noqa: FBT001 - of `_ENGINES`
    # Only a URI can set the mode. A `?` in the path must be quoted.
    mode = {"mode": "ro" if read_only else "rwc", "uri": "true"}
    url = URL.create("sqlite+aiosqlite", database=f"file:{quote(profile.url)}", query=mode)
    return url, {"timeout": _LOCK_SECONDS}


def _postgresql_engine(profile: DatabaseProfile, read_only: bool) -> tuple[str, dict[str, Any]]:  # noqa: ARG001, FBT001 - of `_ENGINES`
    return profile.url, {"server_settings": {"application_name": "mcp-gateway"}}


async def _sqlite_session(raw: Any, read_only: bool) -> Session:  # noqa: FBT001 - of `_SESSIONS`
    if _SECURED not in raw.info:  # kept as long as the connection
        await secure(raw.driver_connection, read_only=read_only)
        raw.info[_SECURED] = True
    return SqliteSession(raw.driver_connection, read_only=read_only)


async def _postgresql_session(raw: Any, read_only: bool) -> Session:  # noqa: FBT001 - of `_SESSIONS`
    if _PREPARED not in raw.info:
        await exchange_times_exactly(raw.driver_connection)
        raw.info[_PREPARED] = OrderedDict()
    return PostgresqlSession(raw.driver_connection, raw.info[_PREPARED], read_only=read_only)


_ENGINES: Final[Mapping[str, Callable[[DatabaseProfile, bool], tuple[URL | str, dict[str, Any]]]]] = {
    "sqlite": _sqlite_engine,
    "postgresql": _postgresql_engine,
}
_SESSIONS: Final[Mapping[str, Callable[[Any, bool], Awaitable[Session]]]] = {
    "sqlite": _sqlite_session,
    "postgresql": _postgresql_session,
}
"""Create the session of a driver connection, by dialect. Other dialects use `OtherSession`."""


@asynccontextmanager
async def open_session(engine: AsyncEngine, dialect: str, *, read_only: bool) -> AsyncIterator[Session]:
    """Borrow a connection. It returns to the pool if it is still usable."""
    new_session = _SESSIONS.get(dialect)
    if new_session is None:
        async with engine.connect() as connection:
            yield OtherSession(connection)
        return
    raw: Any = await engine.raw_connection()
    while _is_closed(raw.driver_connection):  # lost while idle
        raw.invalidate()
        # The pool is synchronous. It can call an asyncio driver only in a greenlet.
        await greenlet_spawn(raw.close)
        raw = await engine.raw_connection()
    session: Session | None = None
    try:
        session = await new_session(raw, read_only)
        yield session
    finally:
        if session is None or not session.is_usable:
            raw.invalidate()
        await greenlet_spawn(raw.close)


def _is_closed(connection: Any) -> bool:
    return hasattr(connection, "is_closed") and connection.is_closed()


class OtherSession:
    """A session of a dialect without special support. Cancellation closes its connection."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection: Final = connection

    @property
    def is_usable(self) -> bool:
        return not self._connection.invalidated

    async def begin(self, *, seconds: float, statements: int) -> None:  # noqa: ARG002 - of the interface
        await self._connection.begin()

    async def run(self, statement: BoundStatement, rows: RowCollector) -> None:
        values = {f"p{number}": value for number, value in enumerate(statement.values, start=1)}

        def collect(connection: Connection) -> None:
            # Without `stream_results`, many drivers fetch the whole result first.
            result = connection.execution_options(stream_results=True).execute(text(statement.text), values)
            if not result.returns_rows:
                rows.note_affected(result.rowcount)
                return
            rows.begin(list(result.keys()))
            while wanted := rows.wanted:
                fetched = result.fetchmany(wanted)
                rows.add(fetched)
                if len(fetched) < wanted:
                    break
            result.close()

        await self._connection.run_sync(collect)

    async def commit(self) -> None:
        await self._connection.commit()

    async def roll_back(self) -> None:
        await self._connection.rollback()

    async def stop(self) -> None:
        await self._connection.invalidate()

    async def prepare(self, statement: BoundStatement) -> None:  # noqa: ARG002 - of the interface
        raise StatementRefusedError("the gateway cannot check statements of this database")

    def failure_of(self, error: Exception) -> ExecutionError | None:
        match error:
            case DBAPIError(connection_invalidated=True):
                return DatabaseConnectionLostError(str(error.orig))
            case DBAPIError():
                return ExecutionError(str(error.orig))
            case SQLAlchemyError() | OverflowError() | ValueError():
                return ExecutionError(str(error))
            case _:
                return None
