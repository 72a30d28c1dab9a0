"""Keeps one connection pool per database and access mode while a catalog uses the database."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Final, Self

import structlog

from gateway.background_tasks import BackgroundTasks
from gateway.executors.sql.dialects import dialect_of
from gateway.executors.sql.sessions import DatabaseProfile, Engine, Session
from gateway.json_types import Json

log: Final = structlog.get_logger(__name__)

_CLOSE_SECONDS: Final = 5.0


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
                self._engine = module.open_engine(self._profile, read_only=self._read_only)
            async with self._engine.session() as session:
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
