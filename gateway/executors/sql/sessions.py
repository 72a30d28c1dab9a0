"""The interface of database sessions (one connection, for one call), and what errors of getting one mean."""

from typing import Final, Protocol

from gateway.errors import ExecutionError
from gateway.executors.sql.query import BoundStatement
from gateway.executors.sql.rows import RowCollector

_AWAY: Final = frozenset({"57P01", "57P02", "57P03", "53300"})
"""SQLSTATEs: shut down by an administrator, crashed, starting, too many connections."""


class DatabaseAwayError(ExecutionError):
    """The database cannot be reached now, or is locked; nothing was changed, and the call may be tried again."""


class DatabaseConnectionLostError(DatabaseAwayError):
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


def is_away(sqlstate: str) -> bool:
    """Whether an SQLSTATE (PostgreSQL's manual, appendix A) means that the database cannot be reached now."""
    return sqlstate in _AWAY or sqlstate.startswith("08")  # class 08: connection exceptions


def failure_of(error: Exception, name: str) -> Exception:
    """Tell what an error of connecting to the database `name` means; the error itself if it is none of a database's."""
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError  # noqa: PLC0415 - of the extra

    cause: BaseException = error
    if isinstance(error, DBAPIError) and error.orig is not None:
        # SQLAlchemy raises an error of its own from that of the driver, which alone tells the reason.
        cause = error.orig.__cause__ or error.orig
    # The words of `threading.Thread.start`, by which aiosqlite begins each connection: there is no class for it.
    if isinstance(cause, RuntimeError) and "start new thread" in str(cause):
        return ExecutionError(f"no thread can be started here: {cause}")
    state = getattr(cause, "sqlstate", None) or ""
    if isinstance(cause, OSError | TimeoutError | ConnectionError) or is_away(state):
        return DatabaseAwayError(_said(cause))
    if isinstance(error, SQLAlchemyError) or state:
        return ExecutionError(f"The database `{name}` cannot be connected to: {_said(cause)}")
    # By name: the driver of another database is not imported to compare. A TypeError comes from a parameter of the URL
    # that the driver's `connect` does not have.
    if type(cause).__module__.split(".")[0] in {"asyncpg", "aiosqlite", "sqlite3"} or isinstance(cause, TypeError):
        return ExecutionError(f"The database `{name}` cannot be connected to: {_said(cause)}")
    return error


def _said(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
