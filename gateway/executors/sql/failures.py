"""Reads the errors of getting a connection: which mean that a database is away, and which that it refuses."""

from gateway.errors import ExecutionError
from gateway.executors.sql.sessions import DatabaseAwayError

_AWAY: frozenset[str] = frozenset({"57P01", "57P02", "57P03", "53300"})


def failure_of(error: Exception, name: str) -> Exception:
    """Tell what an error of connecting to the database `name` means; the error itself if it is none of a database's."""
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError  # noqa: PLC0415 - of the extra

    cause: BaseException = error
    if isinstance(error, DBAPIError) and error.orig is not None:
        cause = error.orig.__cause__ or error.orig
    state = getattr(cause, "sqlstate", None) or ""
    if isinstance(cause, OSError | TimeoutError | ConnectionError) or state in _AWAY or state.startswith("08"):
        return DatabaseAwayError(_said(cause))
    if isinstance(error, SQLAlchemyError) or state:
        return ExecutionError(f"The database `{name}` cannot be connected to: {_said(cause)}")
    if type(cause).__module__.split(".")[0] in {"asyncpg", "aiosqlite", "sqlite3"} or isinstance(cause, TypeError):
        return ExecutionError(f"The database `{name}` cannot be connected to: {_said(cause)}")
    return error


def away_because(name: str, error: DatabaseAwayError, *, attempts: int) -> ExecutionError:
    """The error of a call whose database was away until the deadline."""
    tried = f" ({attempts} attempts)" if attempts > 1 else ""
    return ExecutionError(f"The database `{name}` is away{tried}: {error}")


def _said(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
