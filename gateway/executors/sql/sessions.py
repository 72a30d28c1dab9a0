"""Interfaces of database sessions and engines, and the classification of connection errors."""

import re
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import msgspec

from gateway.errors import ExecutionError
from gateway.executors.sql.dialects import dialect_of
from gateway.executors.sql.query import BoundStatement
from gateway.executors.sql.rows import RowCollector

_UNAVAILABLE: Final = frozenset({"57P01", "57P02", "57P03", "53300"})
"""SQLSTATEs of a server that was shut down, crashed, is starting, or has too many connections."""


class DatabaseProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a database's connections. Equal profiles share a pool."""

    name: str
    dialect: str
    url: str
    """The SQLAlchemy URL including the password, or the path of a database file."""
    size: int

    @property
    def shown(self) -> str:
        return f"{self.name} ({self.dialect})"


class DatabaseUnavailableError(ExecutionError):
    """The database is unavailable or locked. Nothing was changed, so the call can be retried."""


class DatabaseConnectionLostError(DatabaseUnavailableError):
    """The connection was lost. A pending commit can have succeeded."""


class Session(Protocol):
    """Runs one transaction on a connection. Methods raise errors of the driver, which `failure_of` classifies."""

    @property
    def is_usable(self) -> bool:
        """Whether other calls can use the connection after this session."""

    async def begin(self, *, seconds: float, statements: int) -> None:
        """Start a transaction. No statement can take longer than `seconds`."""

    async def run(self, statement: BoundStatement, rows: RowCollector) -> None: ...

    async def commit(self) -> None: ...

    async def roll_back(self) -> None: ...

    async def stop(self) -> None:
        """Stop the running statement and roll back, after a cancellation."""

    async def prepare(self, statement: BoundStatement) -> None:
        """Check a statement without running it.

        Raises:
            StatementError: the database rejects the statement.
        """

    def failure_of(self, error: Exception) -> ExecutionError | None:
        """Classify a driver's error. Return None if the database did not cause the error."""


class Engine(Protocol):
    """Opens either read-only or read-write connections to one database."""

    @property
    def open(self) -> int: ...
    def session(self) -> AbstractAsyncContextManager[Session]:
        """Return a context manager that waits for a free connection and borrows this connection."""

    async def dispose(self) -> None: ...


def is_unavailable(sqlstate: str) -> bool:
    """Return whether an SQLSTATE (PostgreSQL manual, appendix A) means that the database is unavailable."""
    return sqlstate in _UNAVAILABLE or sqlstate.startswith("08")  # class 08: connection exceptions


def failure_of(error: Exception, profile: DatabaseProfile) -> Exception:
    """Return the ExecutionError for a failed connection, or `error` itself if the database did not cause it."""
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError  # noqa: PLC0415 - optional dependency

    # SQLAlchemy wraps the driver's error, which contains the reason.
    cause: BaseException = (error.orig or error) if isinstance(error, DBAPIError) else error
    if cause is not error or isinstance(cause.__cause__, OSError):
        cause = cause.__cause__ or cause
    # aiosqlite starts a thread, and only the message identifies the error of `threading.Thread.start`.
    if isinstance(cause, RuntimeError) and "start new thread" in str(cause):
        return ExecutionError(f"cannot start a thread: {cause}")
    state = getattr(cause, "sqlstate", None) or ""
    if isinstance(cause, OSError | TimeoutError | ConnectionError) or is_unavailable(state):
        return DatabaseUnavailableError(_reason(cause))
    # Compare the name of the module, because other drivers can be missing.
    is_of_driver = state or type(cause).__module__.split(".")[0] in dialect_of(profile.dialect).error_modules
    # A TypeError means that the URL contains a parameter that the driver's `connect` does not accept.
    if is_of_driver or isinstance(error, SQLAlchemyError) or isinstance(cause, TypeError):
        return ExecutionError(f"Cannot connect to the database `{profile.name}`: {_reason(cause)}")
    return error


_NAMED: Final = re.compile(
    r"""near '(.*)' at line|near "(.*?)"|no such [\w ]+: (\S+)|(?:with name|Column) (\S+)|['"](.+?)['"]""", re.DOTALL
)


def place_of(message: str, text: str) -> int | None:
    """Find the part of a statement that an error message quotes or names. Return its offset, or None."""
    for match in _NAMED.finditer(message):
        named = match[match.lastindex or 0]
        for part in (named, named.rpartition(".")[2]):
            if part and (found := text.find(part)) >= 0:
                return found
    return None


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
