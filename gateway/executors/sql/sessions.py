"""The interface of database sessions: one connection to a database, for one call."""

from typing import Protocol

from gateway.errors import ExecutionError
from gateway.executors.sql.query import BoundStatement
from gateway.executors.sql.rows import RowCollector


class DatabaseAwayError(ExecutionError):
    """The database cannot be reached now, or is locked; nothing was changed, and the call may be tried again."""


class ConnectionLostError(DatabaseAwayError):
    """The connection was lost; what was being committed may have been."""


class StatementRefusedError(Exception):
    """The database refuses to prepare a statement; `offset` is the place in the text that was sent, if it says one."""

    def __init__(self, message: str, offset: int | None = None) -> None:
        super().__init__(message)
        self.offset = offset


class Session(Protocol):
    """A connection that runs one transaction. Errors are those of its driver: `failure_of` reads them."""

    @property
    def is_usable(self) -> bool:
        """Whether another call may have the connection afterwards."""

    async def begin(self, *, seconds: float, statements: int) -> None:
        """Begin a transaction of so many statements, none of which may take longer than `seconds`."""

    async def run(self, statement: BoundStatement, rows: RowCollector) -> None:
        """Run a statement, and collect its rows as far as there is room for them."""

    async def commit(self) -> None:
        """Make what was changed last."""

    async def roll_back(self) -> None:
        """End the transaction, if there is one, without a change."""

    async def stop(self) -> None:
        """After a cancellation: have the database stop what it does for this session, and roll back."""

    async def prepare(self, statement: BoundStatement) -> None:
        """Have the database read a statement, and not run it.

        Raises:
            StatementRefusedError: it refuses.
        """

    def failure_of(self, error: Exception) -> ExecutionError | None:
        """Tell what an error of the driver means; None if it is no error of the database's."""
