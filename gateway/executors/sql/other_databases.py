"""Sessions with databases of which SQLAlchemy alone knows the ways: any for which an asyncio driver is installed."""

from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.errors import ExecutionError
from gateway.executors.sql.query import BoundStatement
from gateway.executors.sql.rows import RowCollector
from gateway.executors.sql.sessions import DatabaseConnectionLostError, StatementRefusedError


class OtherSession:
    """A session through SQLAlchemy. A cancelled one is closed, which most databases take for a cancellation."""

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
            # Without `stream_results` many drivers fetch the whole result before the first row is read.
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
        raise StatementRefusedError("this database cannot be asked to prepare a statement")

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
