"""Database engines that use SQLAlchemy's connection pools."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from sqlalchemy import URL, Connection, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.util.concurrency import greenlet_spawn

from gateway.errors import ExecutionError
from gateway.executors.sql.pools import DatabaseConnectionLostError, DatabaseProfile, Engine, Session
from gateway.executors.sql.query import BoundStatement
from gateway.executors.sql.rows import RowCollector

_OWN_TRANSACTIONS: Final[Mapping[str, Any]] = {"isolation_level": "AUTOCOMMIT", "pool_reset_on_return": None}


class PooledEngine:
    """An engine that uses an SQLAlchemy connection pool.

    With `new_session`, sessions control transactions through the driver instead of SQLAlchemy.
    """

    def __init__(
        self,
        url: URL | str,
        *,
        size: int,
        connect_args: Mapping[str, Any],
        new_session: Callable[[Any], Awaitable[Session]] | None = None,
    ) -> None:
        self._new_session: Final = new_session
        self._engine: Final[AsyncEngine] = create_async_engine(
            url,
            pool_size=size,
            max_overflow=0,  # the `pool` setting is the limit
            pool_timeout=86_400,  # the deadline of a call comes first
            hide_parameters=True,  # keeps values out of error messages
            connect_args=connect_args,
            **({} if new_session is None else _OWN_TRANSACTIONS),
        )

    @property
    def open(self) -> int:
        pool: Any = self._engine.pool
        return int(pool.checkedin() + pool.checkedout())

    async def dispose(self) -> None:
        await self._engine.dispose()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        if self._new_session is None:
            async with self._engine.connect() as connection:
                yield GenericSession(connection)
            return
        raw: Any = await self._engine.raw_connection()
        while _is_closed(raw.driver_connection):  # lost while idle
            raw.invalidate()
            # The pool is synchronous and can call an asyncio driver only in a greenlet.
            await greenlet_spawn(raw.close)
            raw = await self._engine.raw_connection()
        session: Session | None = None
        try:
            session = await self._new_session(raw)
            yield session
        finally:
            if session is None or not session.is_usable:
                raw.invalidate()
            await greenlet_spawn(raw.close)


def _is_closed(connection: Any) -> bool:
    return hasattr(connection, "is_closed") and connection.is_closed()


def open_engine(profile: DatabaseProfile, *, read_only: bool) -> Engine:  # noqa: ARG001 - same parameters for all dialects
    return PooledEngine(profile.url, size=profile.size, connect_args={})


class GenericSession:
    """A session for dialects without a session class. `stop` closes the connection."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection: Final = connection

    @property
    def is_usable(self) -> bool:
        return not self._connection.invalidated

    async def begin(self, *, seconds: float, statements: int) -> None:  # noqa: ARG002 - part of `Session`
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
            for wanted in rows.fetches():
                rows.add(result.fetchmany(wanted))
            result.close()

        await self._connection.run_sync(collect)

    async def commit(self) -> None:
        await self._connection.commit()

    async def roll_back(self) -> None:
        await self._connection.rollback()

    async def stop(self) -> None:
        await self._connection.invalidate()

    async def prepare(self, statement: BoundStatement) -> None:  # noqa: ARG002 - part of `Session`
        raise ExecutionError("the driver can only run statements, not prepare them")

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
