"""Keeps connection pools for the configured databases, and classifies connection errors.

Each database has separate pools for read-only and read-write connections. The `module` of each dialect contains the
session class.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Final, Protocol, Self

import msgspec
import structlog

from gateway.background_tasks import BackgroundTasks
from gateway.errors import ExecutionError
from gateway.executors.sql.dialects import dialect_of
from gateway.executors.sql.query import BoundStatement
from gateway.executors.sql.rows import RowCollector
from gateway.json_types import Json

log: Final = structlog.get_logger(__name__)

_CLOSE_SECONDS: Final = 5.0
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
        """Start a transaction. `statements` is the number of statements, which can each take at most `seconds`."""

    async def run(self, statement: BoundStatement, rows: RowCollector) -> None: ...

    async def commit(self) -> None: ...

    async def roll_back(self) -> None: ...

    async def stop(self) -> None:
        """Stop the running statement and roll back, because the call was cancelled."""

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
        """Return a context manager that waits for a free connection and opens a session on the connection."""

    async def dispose(self) -> None: ...


class DatabasePool:
    """A pool of either read-only or read-write connections to the database of a profile."""

    def __init__(self, profile: DatabaseProfile, *, read_only: bool, is_wanted: bool = True) -> None:
        self._profile: Final = profile
        self._read_only: Final = read_only
        self._engine: Engine | None = None
        self.users = 0
        self.is_wanted = is_wanted

    def want(self, *, is_wanted: bool) -> None:
        self.is_wanted = is_wanted

    @property
    def open(self) -> int:
        return 0 if self._engine is None else self._engine.open

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        # Count the user before the first await, because the last user of a removed pool closes the pool.
        self.users += 1
        try:
            if self._engine is None:
                module = dialect_of(self._profile.dialect).load()
                try:
                    self._engine = module.open_engine(self._profile, read_only=self._read_only)
                except OSError as error:  # from files that the URL names
                    raise _refused(error, self._profile) from error
            async with self._engine.session() as session:
                # Before Python 3.12, `asyncio.wait_for` loses a cancellation at the moment when a driver has connected.
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise asyncio.CancelledError
                yield session
        finally:
            self.users -= 1
            if not self.is_wanted and not self.users:
                await self.close()

    async def close(self) -> None:
        # Unset the engine before the await, so that a concurrent call creates a new engine.
        engine, self._engine = self._engine, None
        if engine is not None:
            try:
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await engine.dispose()
            except (OSError, TimeoutError) as error:
                log.warning("database connections were not closed", database=self._profile.name, error=str(error))


class DatabasePools:
    """Owns all connection pools. Use as an async context manager."""

    def __init__(self) -> None:
        self._pools: Final[dict[tuple[DatabaseProfile, bool], DatabasePool]] = {}
        self._kept: frozenset[DatabaseProfile] | None = None
        self._ending: Final = BackgroundTasks()
        self.failures: Final[dict[str, int]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A database that does not respond must not delay the exit.
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._ending.cancel()
        for pool in self._pools.values():
            await pool.close()
        self._pools.clear()

    def pool(self, profile: DatabaseProfile, *, read_only: bool) -> DatabasePool:
        key = profile, read_only
        if key not in self._pools:
            # A call from before a reload can use a database that is no longer configured.
            is_wanted = self._kept is None or profile in self._kept
            self._pools[key] = DatabasePool(profile, read_only=read_only, is_wanted=is_wanted)
        return self._pools[key]

    def keep(self, profiles: Iterable[DatabaseProfile]) -> None:
        """Keep only the pools of these databases. Close every other pool after its last call."""
        self._kept = frozenset(profiles)
        for (profile, read_only), pool in tuple(self._pools.items()):
            pool.want(is_wanted=profile in self._kept)
            if not pool.is_wanted:
                del self._pools[profile, read_only]
                if not pool.users:
                    self.own(pool.close(), name=f"close {profile.name}")

    def note_failure(self, profile: DatabaseProfile) -> None:
        self.failures[profile.name] = self.failures.get(profile.name, 0) + 1

    def own(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        return self._ending.begin(work, name=name)

    def status(self) -> dict[str, Json]:
        profiles = {profile.name: profile for profile, _ in self._pools}
        profiles |= {profile.name: profile for profile in self._kept or ()}
        return {name: self._status_of(profiles[name]) for name in sorted(profiles)}

    def _status_of(self, profile: DatabaseProfile) -> dict[str, Json]:
        pools = [pool for (each, _), pool in self._pools.items() if each.name == profile.name]
        return {
            "dialect": profile.dialect,
            "connections": sum(pool.open for pool in pools),
            "in_use": sum(pool.users for pool in pools),
            "failures": self.failures.get(profile.name, 0),
            "read_only_by": "transaction" if dialect_of(profile.dialect).reads_only else "grants of the user",
        }


def is_unavailable(sqlstate: str) -> bool:
    """Return whether an SQLSTATE (PostgreSQL manual, appendix A) means that the database is unavailable."""
    return sqlstate in _UNAVAILABLE or sqlstate.startswith("08")  # class 08: connection exceptions


def failure_of(error: Exception, profile: DatabaseProfile) -> Exception:
    """Return an ExecutionError if the database caused the connection error, or else `error` unchanged."""
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError  # noqa: PLC0415 - optional dependency

    # SQLAlchemy wraps the driver's error, which contains the reason.
    cause: BaseException = (error.orig or error) if isinstance(error, DBAPIError) else error
    if cause is not error or isinstance(cause.__cause__, OSError):
        cause = cause.__cause__ or cause
    # aiosqlite starts a thread, and only the message identifies the error of `threading.Thread.start`.
    if isinstance(cause, RuntimeError) and "start new thread" in str(cause):
        return ExecutionError(f"cannot start a thread: {cause}")
    state = getattr(cause, "sqlstate", None) or ""
    is_untrusted = isinstance(cause, ssl.SSLCertVerificationError)  # a retry would fail, too
    if (isinstance(cause, OSError) and not is_untrusted) or is_unavailable(state):
        return DatabaseUnavailableError(_reason(cause))
    # Compare the name of the module, because other drivers can be missing.
    is_of_driver = state or type(cause).__module__.split(".")[0] in dialect_of(profile.dialect).error_modules
    # A TypeError means that the URL contains a parameter that the driver's `connect` does not accept.
    if is_untrusted or is_of_driver or isinstance(error, SQLAlchemyError) or isinstance(cause, TypeError):
        return _refused(cause, profile)
    return error


def _refused(error: BaseException, profile: DatabaseProfile) -> ExecutionError:
    return ExecutionError(f"Cannot connect to the database `{profile.name}`: {_reason(error)}")


_NAMED: Final = re.compile(
    r"""near '(.*)' at line|near "(.*?)"|no such [\w ]+: (\S+)|(?:with name|Column) (\S+)|['"](.+?)['"]""", re.DOTALL
)


def offset_of_error(message: str, text: str) -> int | None:
    """Return the offset of the part of a statement that an error message quotes or names, or None."""
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
