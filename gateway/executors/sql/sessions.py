"""The interface of database sessions, and the classification of connection errors."""

from typing import Final, Protocol

from gateway.errors import ExecutionError
from gateway.executors.sql.query import BoundStatement
from gateway.executors.sql.rows import RowCollector

_UNAVAILABLE: Final = frozenset({"57P01", "57P02", "57P03", "53300"})
"""SQLSTATEs: shut down by an administrator, crashed, starting, too many connections."""


class DatabaseUnavailableError(ExecutionError):
    """The database is unavailable or locked. Nothing was changed, so the call can be retried."""


class DatabaseConnectionLostError(DatabaseUnavailableError):
    """The connection was lost. A pending commit can have succeeded."""


class StatementRefusedError(Exception):
    """The database rejected a statement. `offset` is the position in the sent text, if known."""

    def __init__(self, message: str, offset: int | None = None) -> None:
        super().__init__(message)
        self.offset = offset


class Session(Protocol):
    """One transaction on a connection. Raises the driver's errors. See `failure_of`."""

    @property
    def is_usable(self) -> bool:
        """Whether other calls can use the connection afterwards."""

    async def begin(self, *, seconds: float, statements: int) -> None:
        """Start a transaction. No statement can take longer than `seconds`."""

    async def run(self, statement: BoundStatement, rows: RowCollector) -> None: ...

    async def commit(self) -> None: ...

    async def roll_back(self) -> None: ...

    async def stop(self) -> None:
        """After a cancellation, stop the running statement and roll back."""

    async def prepare(self, statement: BoundStatement) -> None:
        """Check a statement without running it.

        Raises:
            StatementRefusedError: the database rejects it.
        """

    def failure_of(self, error: Exception) -> ExecutionError | None:
        """Classify a driver's error. Return None if the database did not cause it."""


def is_unavailable(sqlstate: str) -> bool:
    """Return whether an SQLSTATE (PostgreSQL manual, appendix A) means that the database is unavailable."""
    return sqlstate in _UNAVAILABLE or sqlstate.startswith("08")  # class 08: connection exceptions


def failure_of(error: Exception, name: str) -> Exception:
    """Classify a connection error. Return it unchanged if the database did not cause it."""
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError  # noqa: PLC0415 - of the extra

    cause: BaseException = error
    if isinstance(error, DBAPIError) and error.orig is not None:
        # SQLAlchemy wraps the driver's error, which contains the reason.
        cause = error.orig.__cause__ or error.orig
    # The message of `threading.Thread.start`, which aiosqlite uses. There is no specific class.
    if isinstance(cause, RuntimeError) and "start new thread" in str(cause):
        return ExecutionError(f"cannot start a thread: {cause}")
    state = getattr(cause, "sqlstate", None) or ""
    if isinstance(cause, OSError | TimeoutError | ConnectionError) or is_unavailable(state):
        return DatabaseUnavailableError(_reason(cause))
    if isinstance(error, SQLAlchemyError) or state:
        return ExecutionError(f"Cannot connect to the database `{name}`: {_reason(cause)}")
    # By name, because other drivers can be missing. A TypeError means that the URL contains a parameter that the
    # driver's `connect` does not accept.
    if type(cause).__module__.split(".")[0] in {"asyncpg", "aiosqlite", "sqlite3"} or isinstance(cause, TypeError):
        return ExecutionError(f"Cannot connect to the database `{name}`: {_reason(cause)}")
    return error


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
